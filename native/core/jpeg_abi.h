// The part of libjpeg's interface, version 6.2, that is used here. libjpeg-turbo keeps it stable,
// and jpeg_CreateDecompress compares the version and the size of the structure with its own. The
// names are those of jpeglib.h; what this program does not touch is unnamed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recmap::jpeg_abi {

constexpr int kVersion = 62;

enum ColourSpace : int { kGrey = 1, kRgb = 2, kYcc = 3, kExtRgb = 6, kExtRgba = 12 };

struct Decompress;

struct ErrorManager {
  void (*error_exit)(Decompress*);
  void (*emit_message)(Decompress*, int level);
  void (*output_message)(Decompress*);
  void (*format_message)(Decompress*, char*);
  void (*reset_error_mgr)(Decompress*);
  int msg_code;
  char msg_parm[80];
  int trace_level;
  long num_warnings;
  const void* tables[1];
  int last_jpeg_message;
  const void* addon_table;
  int addon_messages[2];
};

struct Decompress {
  ErrorManager* err;
  void* mem;
  void* progress;
  void* client_data;
  int is_decompressor;
  int global_state;
  void* src;
  unsigned image_width, image_height;
  int num_components;
  int jpeg_color_space;
  int out_color_space;
  unsigned scale_num, scale_denom;
  double output_gamma;
  int buffered_image, raw_data_out;
  int dct_method, do_fancy_upsampling, do_block_smoothing;
  int quantization[7];
  unsigned output_width, output_height;
  int out_color_components, output_components, rec_outbuf_height;
  int actual_number_of_colors;
  void* colormap;
  unsigned output_scanline;
  int input_scan_number;
  unsigned input_iMCU_row;
  int output_scan_number;
  unsigned output_iMCU_row;
  void* coef_bits;
  void* tables[4 + 4 + 4];
  int data_precision;
  void* comp_info;
  int progressive_mode, arith_code;
  uint8_t arithmetic[16 * 3];
  unsigned restart_interval;
  int saw_JFIF_marker;
  uint8_t jfif[3];
  uint16_t densities[2];
  int saw_Adobe_marker;
  uint8_t Adobe_transform;
  int CCIR601_sampling;
  void* marker_list;
  int max_h_samp_factor, max_v_samp_factor;
  int min_DCT_scaled_size;
  unsigned total_iMCU_rows;
  void* sample_range_limit;
  int comps_in_scan;
  void* cur_comp_info[4];
  unsigned MCUs_per_row, MCU_rows_in_scan;
  int blocks_in_MCU;
  int MCU_membership[10];
  int Ss, Se, Ah, Al;
  int unread_marker;
  void* modules[11];
};

}  // namespace recmap::jpeg_abi
