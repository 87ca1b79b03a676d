"""Op families on the roofs of a device, and what sparsity can gain. `gnnperf roofline`, `gnnperf sparsity-roofline`."""

from gnnperf.report.roofline.points import DevicePicture, Point, pictures_of

__all__ = ["DevicePicture", "Point", "pictures_of"]
