"""The structure of documents: what readers and writers of several formats share."""
