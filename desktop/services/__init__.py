"""What happens behind the views: services without widgets, on QtCore and, for images and PDF, QtGui."""
