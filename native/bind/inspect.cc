#include "inspect.h"

#include "bind.h"

namespace recmap::bind {
namespace {

Facts inspect_records(const Buffer& file, const Array<const uint64_t>& offsets, bool verify) {
  const nb::gil_scoped_release release;
  return inspect(as_span(file), as_span(offsets), verify);
}

std::optional<std::pair<uint64_t, uint64_t>> range(const Extent& extent) {
  if (extent.min > extent.max) return std::nullopt;
  return std::pair(extent.min, extent.max);
}

}  // namespace

void bind_inspect(nb::module_& m) {
  nb::class_<FeatureFacts>(m, "FeatureFacts", "What the records seen hold under one key.")
      .def_ro("rows", &FeatureFacts::rows)
      .def_prop_ro(
          "kinds",
          [](const FeatureFacts& f) {
            std::vector<std::pair<Kind, uint64_t>> kinds;
            for (const Kind kind : {Kind::kBytes, Kind::kFloat, Kind::kInt64}) {
              const uint64_t row = f.first_row[static_cast<size_t>(kind)];
              if (row != UINT64_MAX) kinds.emplace_back(kind, row);
            }
            return kinds;
          },
          "The kinds seen, each with the first row that has it.")
      .def_prop_ro("values", [](const FeatureFacts& f) { return range(f.values); })
      .def_prop_ro("steps", [](const FeatureFacts& f) { return range(f.steps); })
      .def_prop_ro("string_size", [](const FeatureFacts& f) { return range(f.string_size); })
      .def_ro("string_size_bits", &FeatureFacts::string_size_bits);

  nb::class_<Facts>(m, "Facts", "What the records seen hold.")
      .def_ro("rows", &Facts::rows)
      .def_prop_ro("not_example", [](const Facts& f) { return f.not_example; })
      .def_prop_ro(
          "features",
          [](const Facts& f) {
            std::vector<std::tuple<bool, std::string, FeatureFacts>> features;
            for (const auto& [key, facts] : f.features) {
              features.emplace_back(key.first, key.second, facts);
            }
            return features;
          },
          "(in the feature lists, key, facts), sorted.");

  m.def("inspect", &inspect_records, nb::arg("file"), nb::arg("offsets"), nb::arg("verify"),
        "Return facts about the features of these records.");
}

}  // namespace recmap::bind
