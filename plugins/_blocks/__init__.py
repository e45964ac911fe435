"""The structure of documents: how files of text formats become a tree of blocks, and back."""
