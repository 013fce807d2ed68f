#include "pages_ahead.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "start_thread.h"

namespace recmap {
namespace {

// What one thread loads at a time, and how far ahead of a reader.
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kMostAhead = size_t{64} << 20;
constexpr size_t kMostThreads = 4;
// Load this many times what was read in order.
constexpr size_t kGrowth = 2;
// How long a thread waits for more before it ends.
constexpr std::chrono::milliseconds kPatience{100};

#if defined(__linux__)
// Older headers do not have it. Older systems refuse it.
constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ

bool is_in_memory(const uint8_t* page) {
  unsigned char resident = 0;
  return mincore(const_cast<uint8_t*>(page), 1, &resident) != 0 || (resident & 1) != 0;
}

// Maps pages, which loads them. False if the system cannot do that at all. What cannot be read is
// the reader's to find.
bool load(const uint8_t* begin, size_t size) {
  return madvise(const_cast<uint8_t*>(begin), size, kPopulateRead) == 0 || errno != EINVAL;
}
#else
constexpr bool is_in_memory(const uint8_t*) { return true; }
constexpr bool load(const uint8_t*, size_t) { return false; }
#endif

}  // namespace

class PageLoader {
 public:
  void note(const std::shared_ptr<MappedPages>& pages, size_t begin, size_t end) {
    const std::lock_guard lock(mutex_);
    if (!supported_ || begin >= end) return;
    MappedPages& file = *pages;
    // Threads that read in turns may be a little behind, and readers may leave out a few bytes.
    const bool in_order =
        begin + kMostAhead >= file.begin_ && begin <= std::max(file.end_, file.asked_) + kPiece;
    if (!in_order) {
      drop(pages);
      file.passed_ = 0;
      file.asked_ = end;
    } else if (end <= file.end_) {
      return;
    } else {
      file.passed_ += end - std::max(begin, file.end_);
    }
    file.begin_ = begin, file.end_ = end;
    if (in_order) ask(pages);
  }

  void forget(const std::shared_ptr<MappedPages>& pages) {
    const std::lock_guard lock(mutex_);
    drop(pages);
  }

 private:
  struct Piece {
    std::shared_ptr<MappedPages> pages;
    size_t begin, end;
  };

  static void* run(void* loader) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "recmap-pages");
#endif
    static_cast<PageLoader*>(loader)->load_pieces();
    return nullptr;
  }

  void drop(const std::shared_ptr<MappedPages>& pages) {
    std::erase_if(pieces_, [&](const Piece& piece) { return piece.pages == pages; });
  }

  void ask(const std::shared_ptr<MappedPages>& pages) {
    MappedPages& file = *pages;
    const size_t size = file.bytes_.size();
    const size_t stop =
        std::min({size, file.begin_ + kMostAhead, file.end_ + kGrowth * file.passed_});
    // The reader is quicker where it is.
    file.asked_ = std::max(file.asked_, (file.begin_ + kPiece - 1) / kPiece * kPiece);
    while (file.asked_ < stop) {
      const size_t end = std::min(size, file.asked_ / kPiece * kPiece + kPiece);
      if (end > stop) break;
      const size_t begin = file.asked_ / page_size() * page_size();
      file.asked_ = end;
      // One page tells enough: looking at all takes a part of the time that reading takes.
      if (is_in_memory(file.bytes_.data() + (end - 1) / page_size() * page_size())) continue;
      pieces_.push_back({pages, begin, end});
    }
    start_threads();
  }

  void start_threads() {
    const size_t wanted = std::min(kMostThreads, pieces_.size());
    for (size_t i = 0; i < std::min(wanted, idle_); ++i) wake_.notify_one();
    while (threads_ < wanted) {
      pthread_t thread;
      if (!start_thread(&run, this, thread)) {
        if (threads_ == 0) pieces_.clear();
        return;
      }
      ++threads_;
    }
  }

  void load_pieces() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      const bool more = wake_.wait_for(lock, kPatience, [this] { return !pieces_.empty(); });
      --idle_;
      if (!more) break;
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      if (piece.begin >= piece.pages->begin_) {
        lock.unlock();
        const bool can = load(piece.pages->bytes_.data() + piece.begin, piece.end - piece.begin);
        piece.pages.reset();  // this may unmap the file
        lock.lock();
        supported_ = supported_ && can;
      }
    }
    --threads_;
  }

  std::mutex mutex_;  // guards what follows, and how files are being read
  std::condition_variable wake_;
  std::deque<Piece> pieces_;
  size_t threads_ = 0, idle_ = 0;
  bool supported_ = true;
};

namespace {

// Never destroyed, because its threads use it until the process ends. A forked child has no
// threads but its own, and leaves the loader of its parent as it was.
PageLoader*& loader() {
  static PageLoader* current = [] {
    pthread_atfork(nullptr, nullptr, [] { loader() = new PageLoader; });
    return new PageLoader;
  }();
  return current;
}

}  // namespace

MappedPages::~MappedPages() {
  unregister_range(range_);
  munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

void prepare_pages_ahead() { loader(); }

void load_pages_ahead(const std::shared_ptr<MappedPages>& pages, size_t begin, size_t end) {
  loader()->note(pages, begin, end);
}

void forget_pages_ahead(const std::shared_ptr<MappedPages>& pages) { loader()->forget(pages); }

}  // namespace recmap
