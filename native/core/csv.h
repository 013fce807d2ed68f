// Rows of CSV, as RFC 4180 defines it: fields may be quoted, and a quote within them is doubled.
// An empty field that is not quoted is null; a quoted one is an empty string.
// All functions are safe to call from any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text_rows.h"
#include "text_values.h"

namespace recmap {

// Parses whole rows. `values` has those of each column of the rows, wanted or not.
TextFault parse_csv(Bytes text, RowSyntax syntax, std::span<TextValues> values, uint64_t& rows);

// Returns the fields of the first row.
std::vector<std::string> first_csv_row(Bytes text, RowSyntax syntax);

// Finds how the fields of each column look, as bits of TextLooks.
TextFault survey_csv(Bytes text, RowSyntax syntax, std::span<uint8_t> looks);

}  // namespace recmap
