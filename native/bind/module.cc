#include "bind.h"

NB_MODULE(_core, m) {
  m.doc() = "The native core: TFRecord framing, tf.train.Example as columns, LZF.";
  recmap::bind::bind_chunks(m);
  recmap::bind::bind_files(m);
  recmap::bind::bind_frames(m);
  recmap::bind::bind_padding(m);
  recmap::bind::bind_reading(m);
  recmap::bind::bind_rows(m);
  recmap::bind::bind_writing(m);
}
