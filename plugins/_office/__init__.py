"""Files of Office: their containers, and their conversion by LibreOffice."""
