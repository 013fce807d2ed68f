// A file mapped read-only. It needs no descriptor while it is mapped, so that any number
// of files can be: a process often has 1,024 descriptors, but 65,530 mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "truncation_guard.h"
#include "wire.h"

namespace recmap {

class Mapping {
 public:
  // Maps the whole file. Throws std::system_error with errno if that cannot be done. `name`
  // is what people call it.
  Mapping(std::string path, std::string name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const { return {data_, size_}; }

  // How much of the file is still there, at most what was mapped. Touching a page behind
  // the end of a file that was truncated raises SIGBUS. If the path leads to another file
  // by now, the mapped one cannot be asked, and its pages are: then the size is that of
  // whole pages.
  size_t current_size() const;

  // Whether the last page is still there: then touching the others raises no signal either.
  // Several times as quick as current_size(), but blind to what is missing of the last page,
  // which reads as zeros.
  bool has_all_pages() const;

  // Gives back the pages of a stretch; the system keeps them cached.
  void release_pages(size_t begin, size_t end) const;

 private:
  size_t size_in_file() const;
  const uint8_t* last_page() const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  MappedRange* range_ = nullptr;
  size_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;
};

}  // namespace recmap
