"""Adapters from pipelines to other frameworks, each imported on first use.

An adapter reads a pipeline through its ``Feed``. This is what each one makes of a batch:

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

``tests/adapters/test_table.py`` checks the adapters against this table.
"""
