"""From folders of images to packed data sets."""
