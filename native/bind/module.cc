#include "bind.h"

NB_MODULE(_core, m) {
  // A thread that reads ahead when the interpreter ends keeps what it reads: nothing that
  // a user could mend, and nothing that is lost.
  nb::set_leak_warnings(false);
  m.doc() = "The native core: TFRecord framing, tf.train.Example as columns, LZF.";
  recmap::bind::bind_lzf(m);
  recmap::bind::bind_mapping(m);
  recmap::bind::bind_frame(m);
  recmap::bind::bind_pad(m);
  recmap::bind::bind_end_with_parent(m);
  recmap::bind::bind_decode(m);
  recmap::bind::bind_gather(m);
  recmap::bind::bind_encode(m);
}
