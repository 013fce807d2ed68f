#include "buffer_pool.h"

#include <new>

#include "bind.h"
#include "page_lock.h"
#include "thread_pool.h"

namespace recmap::bind {

nb::capsule owner_of(const PooledBuffer& buffer) {
  auto* const held = new PooledBuffer(buffer);
  return nb::capsule(held, [](void* pointer) noexcept {
    auto* const given = static_cast<PooledBuffer*>(pointer);
    give_buffer(*given);
    delete given;
  });
}

namespace {

// A buffer that arrays are made over.
class Memory {
 public:
  Memory(size_t size, bool locked) : size_(size), buffer_(take_buffer(size, locked)) {
    if (buffer_.data == nullptr) throw std::bad_alloc();
  }
  ~Memory() { give_buffer(buffer_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<uint8_t> bytes() const { return {buffer_.data, size_}; }

 private:
  size_t size_;
  PooledBuffer buffer_;
};

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  if (!nb::inst_ready(object)) {
    PyErr_SetString(PyExc_BufferError, "this memory was never allocated");
    return -1;
  }
  const std::span<uint8_t> bytes = nb::inst_ptr<Memory>(object)->bytes();
  return PyBuffer_FillInfo(view, object, bytes.data(), static_cast<Py_ssize_t>(bytes.size()), 0,
                           flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                              {0, nullptr}};

}  // namespace

void bind_buffer_pool(nb::module_& m) {
  prepare_buffers();
  prepare_helpers();
  nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots),
                     "Memory that is used again once the last array that looks into it is gone.")
      .def(nb::init<size_t, bool>(), nb::arg("size"), nb::arg("locked") = false,
           nb::call_guard<nb::gil_scoped_release>(),
           "With `locked`, GPUs can copy from it by themselves, once prepare_to_lock_pages() has "
           "found one. Keep it until they are done.");
  m.def("prepare_to_lock_pages", &prepare_to_lock_pages, nb::arg("gpu"),
        nb::call_guard<nb::gil_scoped_release>(),
        "Look for the GPU of this number. Return whether memory can be locked for it.");
  m.def("release_buffers", &release_buffers, nb::call_guard<nb::gil_scoped_release>(),
        "Return memory that waits to be used again to the system. Return how many bytes.");
  m.def("most_kept_bytes", &most_kept_bytes, "Return the most bytes that wait to be used again.");
}

}  // namespace recmap::bind
