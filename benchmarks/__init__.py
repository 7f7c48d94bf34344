"""Speed and accuracy, side by side with what people use instead."""
