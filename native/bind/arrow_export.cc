// Columns for other libraries, through the Arrow C data interface. They read the memory of our
// arrays. A struct that they hold keeps its arrays alive, and may be released on any thread.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "arrow_abi.h"
#include "bind.h"

namespace recmap::bind {
namespace {

struct ArrowField {
  std::string format;
  std::string name;
  std::string metadata;  // as the interface lays it out
  std::vector<ArrowField> children;
};

struct ArrowColumn {
  int64_t length;
  int64_t null_count;
  std::vector<std::optional<Buffer>> buffers;
  std::vector<ArrowColumn> children;
};

using Pairs = std::vector<std::pair<nb::bytes, nb::bytes>>;

void append(std::string& to, const nb::bytes& bytes) {
  const auto size = static_cast<int32_t>(bytes.size());
  to.append(reinterpret_cast<const char*>(&size), sizeof size);
  to.append(bytes.c_str(), bytes.size());
}

std::string joined(const Pairs& pairs) {
  std::string text;
  if (pairs.empty()) return text;
  const auto count = static_cast<int32_t>(pairs.size());
  text.append(reinterpret_cast<const char*>(&count), sizeof count);
  for (const auto& [key, value] : pairs) {
    append(text, key);
    append(text, value);
  }
  return text;
}

// Python 3.12 has it under another name, and the stable ABI of 3.12 has neither.
bool python_is_ending() {
  static const auto asked = [] {
    void* found = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (found == nullptr) found = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    return reinterpret_cast<int (*)()>(found);
  }();
  return asked != nullptr && asked() != 0;
}

// After the interpreter has ended there is nothing to give back references to.
bool python_is_running() { return nb::is_alive() && Py_IsInitialized() && !python_is_ending(); }

// What a struct refers to. A consumer may move a child out of its parent and release it later or
// elsewhere, so each has its own.
template <typename Struct>
struct Family {
  std::vector<Struct> children;
  std::vector<Struct*> pointers;

  explicit Family(size_t count) : children(count), pointers(count) {
    for (size_t i = 0; i < count; ++i) pointers[i] = &children[i];
  }
  ~Family() {
    for (Struct& child : children) {
      if (child.release != nullptr) child.release(&child);
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
};

struct SchemaState : Family<ArrowSchema> {
  explicit SchemaState(const ArrowField& field)
      : Family(field.children.size()),
        format(field.format),
        name(field.name),
        metadata(field.metadata) {}
  std::string format, name, metadata;
};

void fill_schema(ArrowSchema* out, const ArrowField& field) {
  auto state = std::make_unique<SchemaState>(field);
  for (size_t i = 0; i < field.children.size(); ++i) {
    fill_schema(&state->children[i], field.children[i]);
  }
  *out = {.format = state->format.c_str(),
          .name = state->name.c_str(),
          .metadata = state->metadata.empty() ? nullptr : state->metadata.data(),
          .flags = kArrowNullable,
          .n_children = static_cast<int64_t>(state->children.size()),
          .children = state->pointers.empty() ? nullptr : state->pointers.data(),
          .dictionary = nullptr,
          .release =
              [](ArrowSchema* self) {
                delete static_cast<SchemaState*>(self->private_data);
                self->release = nullptr;
              },
          .private_data = nullptr};
  out->private_data = state.release();
}

struct ArrayState : Family<ArrowArray> {
  explicit ArrayState(const ArrowColumn& column)
      : Family(column.children.size()), owners(column.buffers) {
    for (const auto& buffer : owners) buffers.push_back(buffer ? buffer->data() : nullptr);
  }
  std::vector<std::optional<Buffer>> owners;
  std::vector<const void*> buffers;
};

void release_array(ArrowArray* self) {
  if (python_is_running()) {
    const nb::gil_scoped_acquire gil;
    delete static_cast<ArrayState*>(self->private_data);
  }
  self->release = nullptr;
}

void fill_array(ArrowArray* out, const ArrowColumn& column) {
  auto state = std::make_unique<ArrayState>(column);
  for (size_t i = 0; i < column.children.size(); ++i) {
    fill_array(&state->children[i], column.children[i]);
  }
  *out = {.length = column.length,
          .null_count = column.null_count,
          .offset = 0,
          .n_buffers = static_cast<int64_t>(state->buffers.size()),
          .n_children = static_cast<int64_t>(state->children.size()),
          .buffers = state->buffers.data(),
          .children = state->pointers.empty() ? nullptr : state->pointers.data(),
          .dictionary = nullptr,
          .release = &release_array,
          .private_data = nullptr};
  out->private_data = state.release();
}

bool matches(const ArrowColumn& column, const ArrowField& field) {
  return column.children.size() == field.children.size() &&
         std::equal(column.children.begin(), column.children.end(), field.children.begin(),
                    &matches);
}

struct StreamState {
  ArrowField field;
  nb::object batches;
  std::string error;
};

StreamState& state_of(ArrowArrayStream* stream) {
  return *static_cast<StreamState*>(stream->private_data);
}

std::string describe(const nb::python_error& error) {
  try {
    return nb::cast<std::string>(nb::str(error.type().attr("__name__"))) + ": " +
           nb::cast<std::string>(nb::str(error.value()));
  } catch (const std::exception&) {  // its text cannot be made, or is not UTF-8
    return "an exception without a text";
  }
}

// No exception may pass into the consumer, which may be written in C.
template <typename Work>
int without_throwing(std::string& error, Work&& work) {
  try {
    work();
    return 0;
  } catch (nb::python_error& e) {
    error = describe(e);
    return EIO;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::exception& e) {
    error = e.what();
    return EINVAL;
  }
}

int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
  StreamState& state = state_of(self);
  return without_throwing(state.error, [&] { fill_schema(out, state.field); });
}

int get_next(ArrowArrayStream* self, ArrowArray* out) {
  StreamState& state = state_of(self);
  out->release = nullptr;  // the end, unless there is a batch
  if (!python_is_running()) return EIO;
  const nb::gil_scoped_acquire gil;
  return without_throwing(state.error, [&] {
    const nb::object batch = nb::steal(PyIter_Next(state.batches.ptr()));
    if (!batch.is_valid()) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return;
    }
    const auto& column = nb::cast<const ArrowColumn&>(batch);
    if (!matches(column, state.field)) throw std::invalid_argument("a batch of another schema");
    fill_array(out, column);
  });
}

const char* get_last_error(ArrowArrayStream* self) {
  const std::string& error = state_of(self).error;
  return error.empty() ? nullptr : error.c_str();
}

void release_stream(ArrowArrayStream* self) {
  if (python_is_running()) {
    const nb::gil_scoped_acquire gil;
    delete static_cast<StreamState*>(self->private_data);
  }
  self->release = nullptr;
}

template <typename Struct>
nb::object as_capsule(std::unique_ptr<Struct> made, const char* name) {
  PyObject* const capsule = PyCapsule_New(made.get(), name, [](PyObject* object) {
    const char* const own_name = PyCapsule_GetName(object);
    auto* const held = static_cast<Struct*>(PyCapsule_GetPointer(object, own_name));
    if (held->release != nullptr) held->release(held);
    delete held;
  });
  if (capsule == nullptr) {
    made->release(made.get());
    throw nb::python_error();
  }
  made.release();
  return nb::steal(capsule);
}

nb::object export_schema(const ArrowField& field) {
  auto made = std::make_unique<ArrowSchema>();
  fill_schema(made.get(), field);
  return as_capsule(std::move(made), "arrow_schema");
}

nb::object export_stream(const ArrowField& field, nb::iterator batches) {
  auto state = std::make_unique<StreamState>(StreamState{field, std::move(batches), {}});
  auto made = std::make_unique<ArrowArrayStream>(ArrowArrayStream{.get_schema = &get_schema,
                                                                  .get_next = &get_next,
                                                                  .get_last_error = &get_last_error,
                                                                  .release = &release_stream,
                                                                  .private_data = nullptr});
  made->private_data = state.release();
  return as_capsule(std::move(made), "arrow_array_stream");
}

}  // namespace

void bind_arrow_export(nb::module_& m) {
  nb::class_<ArrowField>(m, "ArrowField", "The type of a column as Arrow describes it.")
      .def(
          "__init__",
          [](ArrowField* place, std::string format, std::string name, const Pairs& metadata,
             std::vector<ArrowField> children) {
            new (place) ArrowField{std::move(format), std::move(name), joined(metadata),
                                   std::move(children)};
          },
          nb::arg("format"), nb::arg("name"), nb::arg("metadata"), nb::arg("children"));
  nb::class_<ArrowColumn>(m, "ArrowColumn", "Memory laid out as Arrow lays out a column.")
      .def(
          "__init__",
          [](ArrowColumn* place, int64_t length, int64_t null_count,
             std::vector<std::optional<Buffer>> buffers, std::vector<ArrowColumn> children) {
            new (place) ArrowColumn{length, null_count, std::move(buffers), std::move(children)};
          },
          nb::arg("length"), nb::arg("null_count"), nb::arg("buffers"), nb::arg("children"),
          "The arrays stay alive as long as the column, or whoever it is handed to.");
  m.def("export_arrow_schema", &export_schema, nb::arg("field"),
        "Return a capsule for __arrow_c_schema__.");
  m.def("export_arrow_stream", &export_stream, nb::arg("field"), nb::arg("batches"),
        nb::sig("def export_arrow_stream(field: ArrowField, batches: "
                "collections.abc.Iterator[ArrowColumn]) -> object"),
        "Return a capsule for __arrow_c_stream__. `batches` gives structs of columns.");
}

}  // namespace recmap::bind
