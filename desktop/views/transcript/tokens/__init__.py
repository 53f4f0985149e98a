"""The token inspector of the transcript."""
