"""Annotated images: readers, splits, targets, augmentation and batches."""
