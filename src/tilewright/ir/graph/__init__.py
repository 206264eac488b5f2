"""The Graph IR: whole-tensor ops of a spec table over immutable, hash-consed nodes (see `core` and `spec`)."""

from . import decompose_elementwise, decompose_nn, decompose_recurrent, decompose_reduce, decompose_shape

#: the files that attach decompositions to the rows of the spec table
decompositions = (decompose_elementwise, decompose_nn, decompose_recurrent, decompose_reduce, decompose_shape)
