#include "bind.h"

NB_MODULE(_core, m) {
  // A thread that is still reading ahead when the interpreter exits holds on to its arrays. Users
  // can do nothing about that, and nothing is lost.
  nb::set_leak_warnings(false);
  m.doc() = "The native core: TFRecord framing, tf.train.Example as columns, LZF, resizing.";
  recmap::bind::bind_arrow_export(m);
  recmap::bind::bind_arrow_import(m);
  recmap::bind::bind_buffer_pool(m);
  recmap::bind::bind_chunks(m);
  recmap::bind::bind_column(m);
  recmap::bind::bind_cut_batches(m);
  recmap::bind::bind_decode(m);
  recmap::bind::bind_draws(m);
  recmap::bind::bind_encode(m);
  recmap::bind::bind_end_with_parent(m);
  recmap::bind::bind_frame(m);
  recmap::bind::bind_gather(m);
  recmap::bind::bind_gzip_members(m);
  recmap::bind::bind_inspect(m);
  recmap::bind::bind_jpeg(m);
  recmap::bind::bind_locate(m);
  recmap::bind::bind_lzf(m);
  recmap::bind::bind_mapping(m);
  recmap::bind::bind_moments(m);
  recmap::bind::bind_pack_rows(m);
  recmap::bind::bind_pad(m);
  recmap::bind::bind_parquet(m);
  recmap::bind::bind_permutation(m);
  recmap::bind::bind_place_image(m);
  recmap::bind::bind_reserve(m);
  recmap::bind::bind_scan(m);
  recmap::bind::bind_shuffle(m);
  recmap::bind::bind_slots(m);
  recmap::bind::bind_text_tables(m);
  recmap::bind::bind_utf8(m);
}
