"""Pipelines for other frameworks: one module or a pair for each, imported on first use.

A pipeline hands an adapter a ``Feed``. What each adapter makes of a batch:

=================  ====================  ======================  ==============  ==============
column             ``to_torch``          ``to_tf``               ``to_keras``    ``to_jax``
=================  ====================  ======================  ==============  ==============
dense              tensor, same memory   tensor, at most 1 copy  NumPy array     array on device
ragged             nested tensor, list   ``RaggedTensor``, or    refused: pad    refused: pad
                   of tensors, or parts  padded with zeros       it              it
bytes              list of ``bytes``     ``tf.string`` tensor    refused         refused
dates              integers              integers                integers        integers
without ``label``  dict                  dict                    dict            dict
with ``label``     (features, label)     (features, label)       (features,      (features,
                                                                 label)          label)
``sample_weight``  --                    --                      (features,      --
                                                                 label, weight)
=================  ====================  ======================  ==============  ==============

``tests/adapters/test_table.py`` holds the adapters to this table.
"""
