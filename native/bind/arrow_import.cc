// Columns of other libraries, through the Arrow C data interface. The interface gives no sizes of
// buffers: what can be checked here is checked, and the caller, who knows the types, computes how
// much of a buffer to look at.
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "arrow_abi.h"
#include "arrow_views.h"
#include "bind.h"
#include "ragged_offsets.h"

namespace recmap::bind {
namespace {

[[noreturn]] void refuse(const char* what) { throw std::invalid_argument(what); }

// Bounds the walk through structs, which may refer to each other in a circle.
class Walk {
 public:
  void enter(int64_t children) {
    if (++level_ > kMostLevels) refuse("damaged Arrow data: types of more than 64 levels");
    if (children < 0 || children > left_) refuse("damaged Arrow data: a wrong number of children");
    left_ -= children;
  }
  void leave() { --level_; }

 private:
  static constexpr int kMostLevels = 64;
  int level_ = 0;
  int64_t left_ = 1 << 20;
};

// Takes over what a capsule holds, as the interface has it: whoever moves a struct out marks the
// one left behind as released.
template <typename Struct>
Struct take(nb::handle capsule, const char* name) {
  auto* const held = static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (held == nullptr) throw nb::python_error();
  if (held->release == nullptr) refuse("the Arrow data was already read by another consumer");
  const Struct taken = *held;
  held->release = nullptr;
  return taken;
}

// Releases a struct of another library, whose callback may wait for a thread that needs the GIL.
template <typename Struct>
struct Holder {
  Struct held{};

  Holder() = default;
  explicit Holder(const Struct& taken) : held(taken) {}
  ~Holder() {
    if (held.release == nullptr) return;
    const nb::gil_scoped_release release;
    held.release(&held);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
};

struct ArrowType {
  nb::bytes format;
  nb::bytes name;
  nb::list metadata;
  bool nullable;
  nb::list children;
  nb::object dictionary;
};

nb::bytes text(const char* from) { return nb::bytes(from == nullptr ? "" : from); }

int32_t read_count(const char*& at) {
  int32_t count;
  std::memcpy(&count, at, sizeof count);
  at += sizeof count;
  if (count < 0) refuse("a damaged Arrow schema: metadata of a negative size");
  return count;
}

nb::bytes read_string(const char*& at) {
  const int32_t size = read_count(at);
  nb::bytes string(at, static_cast<size_t>(size));
  at += size;
  return string;
}

nb::list read_metadata(const char* at) {
  nb::list pairs;
  if (at == nullptr) return pairs;
  for (int32_t left = read_count(at); left > 0; --left) {
    nb::bytes key = read_string(at), value = read_string(at);
    pairs.append(nb::make_tuple(key, value));
  }
  return pairs;
}

ArrowType describe(const ArrowSchema& schema, Walk& walk) {
  walk.enter(schema.n_children);
  if (schema.release == nullptr) refuse("a damaged Arrow schema: it was released");
  if (schema.format == nullptr) refuse("a damaged Arrow schema: a type without a format");
  if (schema.n_children > 0 && schema.children == nullptr)
    refuse("a damaged Arrow schema: no children");
  ArrowType type{text(schema.format),
                 text(schema.name),
                 read_metadata(schema.metadata),
                 (schema.flags & kArrowNullable) != 0,
                 nb::list(),
                 nb::none()};
  for (int64_t i = 0; i < schema.n_children; ++i) {
    if (schema.children[i] == nullptr) refuse("a damaged Arrow schema: no child");
    type.children.append(nb::cast(describe(*schema.children[i], walk)));
  }
  if (schema.dictionary != nullptr) type.dictionary = nb::cast(describe(*schema.dictionary, walk));
  walk.leave();
  return type;
}

ArrowType describe(const ArrowSchema& schema) {
  Walk walk;
  return describe(schema, walk);
}

void check(const ArrowArray& array, Walk& walk) {
  walk.enter(array.n_children);
  if (array.release == nullptr) refuse("a damaged Arrow array: it was released");
  if (array.length < 0 || array.offset < 0) refuse("a damaged Arrow array: a negative length");
  if (array.length > std::numeric_limits<int64_t>::max() / 2 - array.offset)
    refuse("a damaged Arrow array: a length that no memory holds");
  if (array.null_count < -1 || array.null_count > array.length)
    refuse("a damaged Arrow array: more nulls than rows");
  if (array.n_buffers < 0 || (array.n_buffers > 0 && array.buffers == nullptr))
    refuse("a damaged Arrow array: no buffers");
  if (array.n_children > 0 && array.children == nullptr)
    refuse("a damaged Arrow array: no children");
  for (int64_t i = 0; i < array.n_children; ++i) {
    if (array.children[i] == nullptr) refuse("a damaged Arrow array: no child");
    check(*array.children[i], walk);
  }
  if (array.dictionary != nullptr) check(*array.dictionary, walk);
  walk.leave();
}

using HeldArray = std::shared_ptr<const Holder<::ArrowArray>>;

struct ImportedArray {
  HeldArray root;
  const ::ArrowArray* array;

  static ImportedArray make(const ::ArrowArray& taken) {
    auto root = std::make_shared<const Holder<::ArrowArray>>(taken);
    Walk walk;
    check(root->held, walk);
    return {root, &root->held};
  }

  ImportedArray child(size_t number) const {
    if (number >= static_cast<size_t>(array->n_children)) refuse("a damaged Arrow array: no child");
    return {root, array->children[number]};
  }

  std::optional<ImportedArray> dictionary() const {
    if (array->dictionary == nullptr) return std::nullopt;
    return ImportedArray{root, array->dictionary};
  }

  const uint8_t* buffer(size_t number, size_t size) const {
    static constexpr uint8_t kNothing = 0;
    const bool there = number < static_cast<size_t>(array->n_buffers);
    const void* const at = there ? array->buffers[number] : nullptr;
    if (at == nullptr && size > 0) refuse("a damaged Arrow array: a buffer is missing");
    if (size > std::numeric_limits<uintptr_t>::max() - reinterpret_cast<uintptr_t>(at))
      refuse("a damaged Arrow array: a buffer larger than memory");
    return at == nullptr ? &kNothing : static_cast<const uint8_t*>(at);
  }
};

class ImportedStream {
 public:
  explicit ImportedStream(nb::handle capsule)
      : stream_(take<ArrowArrayStream>(capsule, "arrow_array_stream")) {}

  ArrowType type() {
    Holder<ArrowSchema> schema;
    call(stream_.held.get_schema, &schema.held);
    return describe(schema.held);
  }

  std::optional<ImportedArray> next() {
    ::ArrowArray array{};
    call(stream_.held.get_next, &array);
    if (array.release == nullptr) return std::nullopt;
    return ImportedArray::make(array);
  }

 private:
  template <typename Out>
  void call(int (*function)(ArrowArrayStream*, Out*), Out* out) {
    if (function == nullptr) refuse("a damaged Arrow stream: no callbacks");
    int failure = 0;
    std::string reason;
    {
      const nb::gil_scoped_release release;
      const std::lock_guard lock(mutex_);  // a stream is read by one thread at a time
      failure = function(&stream_.held, out);
      if (failure != 0) {
        out->release = nullptr;  // a failed callback gives nothing
        reason = last_error();
      }
    }
    if (failure == 0) return;
    throw std::runtime_error(reason.empty() ? std::strerror(failure) : reason);
  }

  std::string last_error() {
    if (stream_.held.get_last_error == nullptr) return {};
    const char* const text = stream_.held.get_last_error(&stream_.held);
    return text == nullptr ? std::string() : std::string(text);
  }

  Holder<ArrowArrayStream> stream_;
  std::mutex mutex_;
};

std::pair<ArrowType, ImportedArray> import_array(nb::handle schema, nb::handle array) {
  const Holder<ArrowSchema> type(take<ArrowSchema>(schema, "arrow_schema"));
  auto made = ImportedArray::make(take<::ArrowArray>(array, "arrow_array"));
  return {describe(type.held), std::move(made)};
}

ArrowType import_schema(nb::handle capsule) {
  const Holder<ArrowSchema> type(take<ArrowSchema>(capsule, "arrow_schema"));
  return describe(type.held);
}

// Returns values, offsets, and the first string that is damaged.
std::tuple<nb::object, nb::object, std::optional<size_t>> read_views(
    const Buffer& views, const std::vector<Buffer>& buffers, const std::optional<Buffer>& nulls) {
  const size_t rows = views.size() / kArrowViewSize;
  if (nulls && nulls->size() != rows) throw nb::value_error("one null per view");
  std::vector<Bytes> data;
  for (const Buffer& buffer : buffers) data.push_back(as_span(buffer));
  std::span<int64_t> offsets;
  nb::object made_offsets = new_array<int64_t>(rows + 1, "int64", offsets);
  std::optional<size_t> bad;
  {
    const nb::gil_scoped_release release;
    bad = measure_views(as_span(views), data, nulls ? as_span(*nulls) : Bytes(), offsets);
  }
  if (bad) return {nb::none(), nb::none(), bad};
  std::span<uint8_t> values;
  nb::object made_values = new_array<uint8_t>(static_cast<size_t>(offsets[rows]), "uint8", values);
  {
    const nb::gil_scoped_release release;
    copy_views(as_span(views), data, offsets, values);
  }
  return {made_values, made_offsets, std::nullopt};
}

bool sound_offsets(const Array<const int64_t>& offsets, uint64_t limit) {
  const nb::gil_scoped_release release;
  return offsets_are_sound(as_span(offsets), limit);
}

}  // namespace

void bind_arrow_import(nb::module_& m) {
  nb::class_<ArrowType>(m, "ArrowType", "The type of a column of another library.")
      .def_ro("format", &ArrowType::format)
      .def_ro("name", &ArrowType::name)
      .def_ro("metadata", &ArrowType::metadata,
              nb::sig("def metadata(self) -> list[tuple[bytes, bytes]]"))
      .def_ro("nullable", &ArrowType::nullable)
      .def_ro("children", &ArrowType::children, nb::sig("def children(self) -> list[ArrowType]"))
      .def_ro("dictionary", &ArrowType::dictionary,
              nb::sig("def dictionary(self) -> ArrowType | None"));
  nb::class_<ImportedArray>(m, "ArrowArray", "A column of another library, kept alive.")
      .def_prop_ro("length", [](const ImportedArray& self) { return self.array->length; })
      .def_prop_ro("offset", [](const ImportedArray& self) { return self.array->offset; })
      .def_prop_ro("null_count", [](const ImportedArray& self) { return self.array->null_count; })
      .def_prop_ro("n_buffers", [](const ImportedArray& self) { return self.array->n_buffers; })
      .def_prop_ro("n_children", [](const ImportedArray& self) { return self.array->n_children; })
      .def_prop_ro("dictionary", &ImportedArray::dictionary)
      .def("child", &ImportedArray::child, nb::arg("number"))
      .def(
          "has_buffer",
          [](const ImportedArray& self, size_t number) {
            return number < static_cast<size_t>(self.array->n_buffers) &&
                   self.array->buffers[number] != nullptr;
          },
          nb::arg("number"))
      .def(
          "buffer",
          [](nb::handle self, size_t number, size_t size) {
            const uint8_t* at = nb::cast<const ImportedArray&>(self).buffer(number, size);
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(at, {size}, self);
          },
          nb::arg("number"), nb::arg("size"),
          nb::sig("def buffer(self, number: int, size: int) -> numpy.typing.NDArray[numpy.uint8]"),
          "Return the first `size` bytes of a buffer, as a view. Nobody can check that it has so "
          "many.");
  nb::class_<ImportedStream>(m, "ArrowStream", "Batches of another library.")
      .def(nb::init<nb::handle>(), nb::arg("capsule"),
           nb::sig("def __init__(self, capsule: object) -> None"))
      .def("type", &ImportedStream::type)
      .def("next", &ImportedStream::next, "Return the next batch, or None at the end.");
  m.def(
      "import_arrow_array", &import_array, nb::arg("schema"), nb::arg("array"),
      nb::sig(
          "def import_arrow_array(schema: object, array: object) -> tuple[ArrowType, ArrowArray]"),
      "Take over the array of two capsules.");
  m.def("import_arrow_schema", &import_schema, nb::arg("schema"),
        nb::sig("def import_arrow_schema(schema: object) -> ArrowType"),
        "Take over the schema of a capsule.");
  m.def("read_arrow_views", &read_views, nb::arg("views"), nb::arg("buffers"), nb::arg("nulls"),
        nb::sig("def read_arrow_views(views: numpy.typing.NDArray[numpy.uint8], buffers: "
                "list[numpy.typing.NDArray[numpy.uint8]], nulls: numpy.typing.NDArray[numpy.uint8] "
                "| None) -> tuple[numpy.typing.NDArray[numpy.uint8], "
                "numpy.typing.NDArray[numpy.int64], int | None]"),
        "Return the bytes of strings in Arrow's view layout end to end, their offsets, and the "
        "number of the first string that lies outside of the buffers.");
  m.def("offsets_are_sound", &sound_offsets, nb::arg("offsets"), nb::arg("limit"),
        "Return whether offsets ascend from 0 or more to at most `limit`.");
}

}  // namespace recmap::bind
