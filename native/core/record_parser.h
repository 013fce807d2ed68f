// Finds the cells of wanted columns in one record after another. Files repeat
// themselves: a record that has the length and the skeleton of the one before
// it (all bytes but the payloads) has its cells in the same places, and is not
// walked again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "column.h"
#include "example.h"

namespace recmap {

// Holds the cells of the last record, so it belongs to one thread. The columns
// must outlive it.
class RecordParser {
 public:
  // With `watch` it also tells which features no column reads.
  explicit RecordParser(std::span<const Column> columns, bool watch = false);

  // Finds the cells of `record`, one per column, valid until the next call. The
  // record must stay where it is as long as the cells are used. False if the
  // record is malformed.
  bool walk(Bytes record);

  std::span<const Cell> cells() const { return cells_; }

  // The features of the last record that have a value and that no column reads. The keys
  // point into a record that was walked.
  struct Unknown {
    bool in_lists;
    Bytes key;
    Kind kind;  // kNone of a feature list
  };
  std::span<const Unknown> unknown() const { return unknown_; }

  // The description of columns that the last record begins with, if it does (example.h). It
  // points into a record that was walked.
  Bytes description() const { return description_; }

  // Whether the last record is a message, but holds no features (example.h).
  bool empty() const { return empty_; }

  // Messages that the cells of walked records point into. Moved out by a caller
  // who keeps cells beyond the next walk.
  Scratch& scratch() { return scratch_; }

 private:
  struct Range {
    size_t begin;
    size_t size;
  };

  bool walk_anew(Bytes record, bool lists);
  void place(bool in_lists, Bytes key, const Cell& cell);
  int find(bool in_lists, Bytes key);
  void leave(bool in_lists, Bytes key, const Cell& cell);
  bool settle_unknown();
  void learn(Bytes record);
  bool matches(Bytes record) const;

  std::span<const Column> columns_;
  bool watch_;
  bool wants_lists_;
  bool needs_lists_;
  std::unordered_map<std::string_view, int> by_key_[2];  // of the features, of the lists
  std::vector<Cell> cells_;
  std::vector<uint8_t> from_lists_;
  std::vector<Unknown> unknown_;
  std::vector<Cell> unknown_cells_;
  bool valued_ = false;
  bool empty_ = false;
  Bytes description_;
  Scratch scratch_;

  // The order of the keys in the last record, as columns, tried first.
  std::vector<int> order_;
  size_t entry_ = 0;

  // The skeleton of the last record that was learned.
  std::vector<Bytes> payloads_;
  std::vector<Range> fixed_;
  std::vector<uint8_t> skeleton_;
  std::vector<Range> cell_ranges_;
  size_t learned_length_ = SIZE_MAX;
  size_t last_length_ = SIZE_MAX;
  bool plain_ = false;
  int patience_;
};

}  // namespace recmap
