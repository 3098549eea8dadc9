"""The input path of a GPU: rows go to the device as they are stored, and become batches there.

    loads.py    which rows to read together, and which of them each batch takes
    layout.py   one buffer for the arrays of some rows
    reading.py  threads that fill page-locked buffers and send them
    windows.py  rows on the device, in the epoch's order; from them the batches
    checks.py   the checks of a batch, without waiting for the device
    lane.py     the stream on which all this runs beside the training

Everything runs on any torch device, the CPU included, and gives the batches of trainer.data.stream bit for
bit.
"""
