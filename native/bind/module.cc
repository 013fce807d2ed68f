#include "bind.h"

NB_MODULE(_core, m) {
  // A thread that reads ahead when the interpreter ends keeps what it reads: nothing that
  // a user could mend, and nothing that is lost.
  nb::set_leak_warnings(false);
  m.doc() = "The native core: TFRecord framing, tf.train.Example as columns, LZF.";
  recmap::bind::bind_chunks(m);
  recmap::bind::bind_files(m);
  recmap::bind::bind_frames(m);
  recmap::bind::bind_padding(m);
  recmap::bind::bind_processes(m);
  recmap::bind::bind_reading(m);
  recmap::bind::bind_rows(m);
  recmap::bind::bind_writing(m);
}
