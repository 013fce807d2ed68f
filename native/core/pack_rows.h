// Short sequences -> rows of one length. Places are found first, and then the items are copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace recmap {

// Where sequences go. Rows are numbered in the order in which they are begun.
struct Places {
  std::vector<int64_t> rows;      // of each sequence
  std::vector<int64_t> begins;    // of each sequence, within its row
  std::vector<int64_t> finished;  // rows that nothing is added to any more, in order
  std::vector<int64_t> after;     // how many sequences were placed when each of them was finished
};

// Finds places for sequences. One thread at a time may use it.
class RowFitter {
 public:
  // Keeps up to `open_rows` rows of `length` items open. Both are 1 or more.
  RowFitter(int64_t length, size_t open_rows) : length_(length), most_open_(open_rows) {}

  // Opens rows 0, 1, 2, ... again, in which so many items are free: from 1 to the length.
  bool restore(std::span<const int64_t> free);

  // Places sequences in order. Each goes into the fullest row that has room; if none has, the
  // fullest is finished. Returns false, and places nothing, if a size is not from 1 to the length.
  bool place(std::span<const int64_t> sizes, Places& places);

  // Places sequences, the longest first, each into the fullest row that has room. Then finishes
  // rows, oldest first, except those with the most room.
  bool place_sorted(std::span<const int64_t> sizes, Places& places);

  // Finishes all rows, oldest first.
  void finish(Places& places);

 private:
  using Free = std::pair<int64_t, int64_t>;  // items free in a row, and its number

  bool fits(std::span<const int64_t> sizes) const;
  std::pair<int64_t, int64_t> put(int64_t size, bool limited, size_t placed, Places& places);

  int64_t length_;
  size_t most_open_;
  int64_t next_ = 0;
  std::vector<Free> free_;  // sorted
};

// A sequence to copy: `size` items from item `from` of the values to item `to` of the output.
struct Copies {
  std::span<const int64_t> from;
  std::span<const int64_t> to;
  std::span<const int64_t> sizes;
};

// Copies items of `item` bytes. Returns false if any are outside of the values or the output.
bool copy_sequences(std::span<const uint8_t> values, const Copies& copies, size_t item,
                    std::span<uint8_t> out);

// Numbers the items of each sequence: 0, 1, 2, ... in `positions`, and its place among those of
// its row, from `numbers`, in `segments`. Either may be empty. Returns false if any are outside.
bool number_items(std::span<const int64_t> to, std::span<const int64_t> sizes,
                  std::span<const int64_t> numbers, std::span<int32_t> positions,
                  std::span<int32_t> segments);

}  // namespace recmap
