// The fault of the lowest row that several threads found, so that what is reported does not
// depend on how they ran.
#pragma once

#include <mutex>

#include "fault.h"

namespace recmap {

class FirstFault {
 public:
  // Safe to call from any thread.
  void add(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    if (!fault_ || fault.row < fault_.row) fault_ = fault;
  }

  // Only once all threads have ended.
  const Fault& get() const { return fault_; }

 private:
  std::mutex mutex_;
  Fault fault_;
};

}  // namespace recmap
