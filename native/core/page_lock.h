// Memory from which GPUs copy by themselves: its pages are locked in place and known to the CUDA
// driver. All functions are safe to call from any thread, but not in a forked child of a process
// that has used them.
#pragma once

#include <cstddef>

namespace recmap {

// Looks for the driver and for the GPU of this number. Returns false if there is none. Must be
// called before pages are locked. The GPU of the first call is used to lock them, because every
// GPU that is used takes some of its memory for this process.
bool prepare_to_lock_pages(int gpu);

// Locks pages, for all GPUs of this process. Returns false if they could not be.
bool lock_pages(void* data, size_t size);

void unlock_pages(void* data);

}  // namespace recmap
