// A file mapped read-only. It needs no descriptor while it is mapped, so that very many files can
// be mapped: a process often has 1,024 descriptors, but 65,530 mappings. Const calls are safe from
// any thread.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "pages_ahead.h"
#include "wire.h"

namespace recmap {

class Mapping {
 public:
  // Maps the whole file. Throws std::system_error with errno if that fails. `name` is what users
  // call the file.
  Mapping(std::string path, std::string name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const { return {data_, size_}; }

  // How much of the file is still there, at most what was mapped. Touching a page behind the end
  // of a truncated file raises SIGBUS. If the path leads to another file by now, the pages are
  // tried instead, and the size is one of whole pages.
  size_t current_size() const;

  // Whether the last page is still there, and therefore all others. Several times as quick as
  // current_size(), but blind to what is missing of the last page, which reads as zeros.
  bool has_all_pages() const;

  // Whether the file has its size and was last changed at this time, in nanoseconds. One to which
  // the path no longer leads counts as unchanged: only who has it open can change it.
  bool is_unchanged(int64_t since) const;

  // Notes that a span is about to be read, and loads pages that follow if the reads are in order.
  void load_ahead(size_t begin, size_t end) const;

  // Unmaps the pages of a span from this process. The system keeps them cached, and maps them again
  // when they are touched.
  void release_pages(size_t begin, size_t end) const;

  // Between these calls, which may be nested, the system reads only the pages that are touched, and
  // nothing around them.
  void begin_scattered_reads() const;
  void end_scattered_reads() const;

 private:
  size_t size_in_file() const;
  bool is_mapped(const struct stat& status) const;  // that of the file that is mapped
  const uint8_t* last_page() const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  std::shared_ptr<MappedPages> pages_;  // none if it is empty
  size_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;
  mutable std::atomic<int> scattered_reads_ = 0;
};

}  // namespace recmap
