"""Operations: the transforms of images."""
