"""Reports: metrics, TensorBoard, the summary, goodput and profiles."""
