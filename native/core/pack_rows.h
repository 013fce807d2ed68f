// Short sequences -> rows of one length. Places are found first, and then the items are copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace recmap {

// A row that nothing is added to any more.
struct FinishedRow {
  int64_t number;
  int64_t used;   // items
  int64_t after;  // how many sequences had been placed
};

// Where sequences go. Rows that were open before are numbered 0, 1, 2, ... in the order in which
// they were begun, and those that are begun follow.
struct Places {
  std::vector<int64_t> rows;     // of each sequence
  std::vector<int64_t> begins;   // of each sequence, within its row
  std::vector<int64_t> numbers;  // of each sequence, among those of its row: 1, 2, 3, ...
  std::vector<FinishedRow> finished;
};

// A row that has room.
struct OpenRow {
  int64_t free;  // items
  int64_t number;
  int64_t sequences = 0;

  bool operator<(const OpenRow& other) const {
    return free != other.free ? free < other.free : number < other.number;
  }
};

// Finds places for sequences. One thread at a time may use it.
class RowFitter {
 public:
  // Keeps up to `open_rows` rows of `length` items open. Both are 1 or more.
  RowFitter(int64_t length, size_t open_rows) : length_(length), most_open_(open_rows) {}

  // Opens rows again, in which so many items are free, from 1 to the length, and which have so many
  // sequences. Returns false, and opens none, if they do not fit.
  bool restore(std::span<const int64_t> free, std::span<const int64_t> sequences);

  // Places sequences in order. Each goes into the fullest row that has room; if none has, the
  // fullest is finished. Returns false, and places nothing, if a size is not from 1 to the length.
  bool place(std::span<const int64_t> sizes, Places& places);

  // The same for windows of sequences, which end at `ends`; the last one ends with the sequences.
  // Those of a window are placed the longest first, into as many rows as that takes. Then rows are
  // finished, oldest first, except those with the most room.
  bool place_sorted(std::span<const int64_t> sizes, std::span<const int64_t> ends, Places& places);

  // Finishes all rows, oldest first, and returns how many items each has.
  std::vector<int64_t> finish();

 private:
  bool fits(std::span<const int64_t> sizes) const;
  void begin(std::span<const int64_t> sizes, Places& places);
  void put(size_t i, int64_t size, bool limited, Places& places);
  void close(const OpenRow& row, size_t placed, Places& places) const;
  void sort_window(std::span<const int64_t> sizes, size_t first, size_t end);

  int64_t length_;
  size_t most_open_;
  int64_t next_ = 0;
  std::vector<OpenRow> open_;  // sorted
  std::vector<size_t> order_, counts_;
};

// A sequence to copy: `size` items from item `from` of the values to item `to` of the output.
struct Copies {
  std::span<const int64_t> from;
  std::span<const int64_t> to;
  std::span<const int64_t> sizes;
};

// Copies items of `item` bytes, on up to `threads` threads; nothing may overlap. Returns false if
// any are outside of the values or the output.
bool copy_sequences(std::span<const uint8_t> values, const Copies& copies, size_t item,
                    std::span<uint8_t> out, size_t threads);

// Numbers the items of each sequence: 0, 1, 2, ... in `positions`, and its number, from `numbers`,
// in `segments`. Either may be empty. Uses up to `threads` threads. Returns false if any are
// outside.
bool number_items(std::span<const int64_t> to, std::span<const int64_t> sizes,
                  std::span<const int64_t> numbers, std::span<int32_t> positions,
                  std::span<int32_t> segments, size_t threads);

}  // namespace recmap
