#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace recmap {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) throw std::system_error(errno, std::generic_category(), path);
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

Mapping::Mapping(std::string path, std::string name) : path_(std::move(path)) {
  const Descriptor file(path_);
  struct stat status{};
  if (fstat(file.number(), &status) != 0) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
  if (S_ISDIR(status.st_mode)) throw std::system_error(EISDIR, std::generic_category(), path_);
  size_ = static_cast<size_t>(status.st_size);
  device_ = static_cast<uint64_t>(status.st_dev);
  inode_ = static_cast<uint64_t>(status.st_ino);
  if (size_ == 0) return;  // an empty file cannot be mapped
  void* const data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path_);
  data_ = static_cast<const uint8_t*>(data);
  pages_ = std::make_shared<MappedPages>(bytes(), register_range(data_, size_, std::move(name)));
}

Mapping::~Mapping() {
  if (pages_ != nullptr) forget_pages_ahead(pages_);
}

size_t Mapping::current_size() const {
  // Behind the end that a read has found, zeros are mapped, whatever the file has by now.
  return size_ == 0 ? 0 : std::min(size_in_file(), pages_->range().end.load());
}

size_t Mapping::size_in_file() const {
  struct stat status{};
  if (stat(path_.c_str(), &status) == 0 && is_mapped(status)) {
    return std::min(size_, static_cast<size_t>(status.st_size));
  }
  if (is_readable(last_page())) return size_;
  size_t low = 0, high = (size_ - 1) / page_size();  // around the first page that is gone
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (is_readable(data_ + middle * page_size())) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low * page_size();
}

bool Mapping::is_unchanged(int64_t since) const {
  struct stat status{};
  if (stat(path_.c_str(), &status) != 0 || !is_mapped(status)) return true;
#if defined(__APPLE__)
  const timespec& changed = status.st_ctimespec;
#else
  const timespec& changed = status.st_ctim;
#endif
  const int64_t time = int64_t{changed.tv_sec} * 1'000'000'000 + changed.tv_nsec;
  return time == since && static_cast<size_t>(status.st_size) == size_;
}

bool Mapping::is_mapped(const struct stat& status) const {
  return static_cast<uint64_t>(status.st_dev) == device_ &&
         static_cast<uint64_t>(status.st_ino) == inode_;
}

bool Mapping::has_all_pages() const {
#if defined(__linux__)
  if (size_ == 0) return true;
  return pages_->range().end.load() == MappedRange::kWhole && is_readable(last_page());
#else
  return current_size() == size_;
#endif
}

const uint8_t* Mapping::last_page() const {
  return data_ + (size_ - 1) / page_size() * page_size();
}

void Mapping::load_ahead(size_t begin, size_t end) const {
  if (pages_ != nullptr) load_pages_ahead(pages_, begin, std::min(end, size_));
}

void Mapping::release_pages(size_t begin, size_t end) const {
#if defined(__linux__)  // elsewhere the advice means something else, or nothing
  begin -= begin % page_size();
  end = std::min(end, size_);
  if (begin < end) madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
#else
  static_cast<void>(begin), static_cast<void>(end);
#endif
}

// Two threads may change the advice in the wrong order. Then one batch is read more slowly.
void Mapping::begin_scattered_reads() const {
  if (scattered_reads_.fetch_add(1) == 0 && size_ != 0) {
    madvise(const_cast<uint8_t*>(data_), size_, MADV_RANDOM);
  }
}

void Mapping::end_scattered_reads() const {
  if (scattered_reads_.fetch_sub(1) == 1 && size_ != 0) {
    madvise(const_cast<uint8_t*>(data_), size_, MADV_NORMAL);
  }
}

}  // namespace recmap
