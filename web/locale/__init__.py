"""The languages of pages and emails, with their catalogues of translations."""
