// Loading pages of mapped files ahead of those who read them in order. Touching pages asks the disk
// for one part at a time; here a few threads ask for several. They start when pages are absent, and
// end soon after nothing is left to load. A forked child starts its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "truncation_guard.h"
#include "wire.h"

namespace recmap {

// Makes the process ready to fork at any time. Call it once, when the program begins.
void prepare_pages_ahead();

// The pages of a mapped file, and how it is being read. They stay mapped while this lives. Safe to
// use from any thread.
class MappedPages {
 public:
  MappedPages(Bytes bytes, MappedRange* range) : bytes_(bytes), range_(range) {}
  ~MappedPages();
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  Bytes bytes() const { return bytes_; }
  MappedRange& range() const { return *range_; }

 private:
  friend class PageLoader;

  const Bytes bytes_;
  MappedRange* const range_;
  // The span read last, how much was read in order, and up to where pages were asked for. The first
  // read follows none.
  size_t begin_ = SIZE_MAX, end_ = 0, passed_ = 0, asked_ = 0;
};

// Notes that a span is about to be read, and begins to load what is absent of that which follows,
// if the reads are in order: twice what was read, within a limit.
void load_pages_ahead(const std::shared_ptr<MappedPages>& pages, size_t begin, size_t end);

// Gives up what was not begun.
void forget_pages_ahead(const std::shared_ptr<MappedPages>& pages);

}  // namespace recmap
