// Finds the cells of wanted columns in one record after another. Files repeat themselves: a record
// with the length and the skeleton of the one before it (all bytes except the payloads) has its
// cells at the same places, and is not visited again.
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

// Holds the cells of the last record, so it belongs to one thread. The columns must outlive it.
class RecordParser {
 public:
  // With `find_unknown` it also finds the features that no column reads.
  explicit RecordParser(std::span<const Column> columns, bool find_unknown = false);

  // Finds the cells of `record`, one per column, valid until the next call. They point into the
  // record or into scratch(). False if the record is malformed.
  bool parse(Bytes record);

  std::span<const Cell> cells() const { return cells_; }

  // The features of the last record that have a value and that no column reads. Keys point into
  // a record that was parsed, not always the last.
  struct Unknown {
    bool in_lists;
    Bytes key;
    Kind kind;  // kNone for a feature list
  };
  std::span<const Unknown> unknown() const { return unknown_; }

  // The description of the columns that the last record begins with, if any (example.h). It
  // points into a record that was parsed, not always the last.
  Bytes description() const { return description_; }

  // What is wrong with the last record as a whole (example.h).
  FaultCode shape_fault() const { return shape_fault_; }

  // Whether the layout of this record, the last, is known, so that others like it need not be
  // visited; and the ranges of it around the payloads.
  struct Range {
    size_t begin;
    size_t size;
  };
  bool learned(Bytes record) const { return record.size() == learned_length_; }
  std::span<const Range> fixed() const { return fixed_; }

  // Messages that cells point into, because a record held them in several parts. To keep cells
  // beyond the next parse(), move them out.
  Scratch& scratch() { return scratch_; }

 private:
  bool parse_anew(Bytes record, bool lists);
  void place(bool in_lists, Bytes key, const Cell& cell);
  int find(bool in_lists, Bytes key);
  void add_unknown(bool in_lists, Bytes key, const Cell& cell);
  bool check_unknown();
  void learn(Bytes record);
  bool matches(Bytes record) const;

  std::span<const Column> columns_;
  bool find_unknown_;
  bool wants_lists_;
  bool needs_lists_;
  std::unordered_map<std::string_view, int> by_key_[2];  // in the features, in the lists
  std::vector<Cell> cells_;
  std::vector<uint8_t> from_lists_;
  std::vector<Unknown> unknown_;
  std::vector<Cell> unknown_cells_;
  bool has_values_ = false;
  FaultCode shape_fault_ = FaultCode::kNone;
  Bytes description_;
  Scratch scratch_;

  // The columns of the last record in the order of its keys, which are tried first.
  std::vector<int> order_;
  size_t entry_ = 0;

  // The last skeleton that was learned, and where the cells lie in it.
  std::vector<Bytes> payloads_;
  std::vector<Range> fixed_;
  std::vector<uint8_t> skeleton_;
  std::vector<Range> cell_ranges_;
  size_t learned_length_ = SIZE_MAX;
  size_t last_length_ = SIZE_MAX;
  bool plain_ = false;  // all values of the last record are single payloads
  int skeletons_left_;
};

}  // namespace recmap
