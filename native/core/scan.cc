#include "scan.h"

#include <algorithm>

#include "frame.h"
#include "parallel.h"

namespace recmap {
namespace {

// A span smaller than this is not worth a thread.
constexpr uint64_t kMinSpan = uint64_t{1} << 20;
constexpr uint64_t kSpansPerThread = 4;
// A file can be made so that a sound length stands anywhere, each before data that is not sound.
// find_record() checks this many bytes of such data, and twice the file; from then on only
// small records.
constexpr uint64_t kMaxWasted = uint64_t{1} << 30;
constexpr uint64_t kSmallRecord = 4096;

bool length_is_sound(const uint8_t* header) {
  return masked_crc32c(header, 8) == load_le<uint32_t>(header + 8);
}

// Scans [begin, stop) on this thread.
Scan scan_span(Bytes file, const ScanRequest& request, uint64_t begin, uint64_t stop) {
  Scan result;
  result.begin = begin;
  uint64_t at = begin;
  uint64_t next_anchor = request.anchor_every == 0 ? UINT64_MAX : 0;
  while (at < stop && result.records < request.limit) {
    Bytes data;
    if (!read_frame(file, at, request.verify, data, result.fault)) break;
    if (result.records == 0) {
      result.min_length = result.max_length = result.first_length = data.size();
    } else {
      result.min_length = std::min<uint64_t>(result.min_length, data.size());
      result.max_length = std::max<uint64_t>(result.max_length, data.size());
    }
    if (result.records == next_anchor) {
      result.anchor_rows.push_back(result.records);
      result.anchor_offsets.push_back(at);
      next_anchor += request.anchor_every;
    }
    ++result.records;
    at += data.size() + kFrameSize;
  }
  result.fault.row = result.records;
  result.end = at;
  return result;
}

// Where a thread enters [begin, stop) of a file whose records begin at `first`. Records often have
// one size, so it tries where the next would then begin, before it searches byte by byte. Both may
// find a false record.
uint64_t entry_of(Bytes file, uint64_t first, uint64_t begin, uint64_t stop) {
  Bytes data;
  Fault ignored;
  if (!read_frame(file, first, false, data, ignored)) return find_record(file, begin, stop);
  // The very first may be longer than the others, by a description of the columns.
  const uint64_t second = first + data.size() + kFrameSize;
  if (second >= begin) return second < stop ? second : stop;
  if (!read_frame(file, second, false, data, ignored)) return find_record(file, begin, stop);
  const uint64_t size = data.size() + kFrameSize;
  const uint64_t guess = begin + (size - (begin - second) % size) % size;
  if (guess >= stop && size > stop - begin) return stop;
  const bool inside = guess < stop && file.size() - guess >= kFrameSize;
  return inside && length_is_sound(file.data() + guess) ? guess : find_record(file, begin, stop);
}

void append(Scan& whole, const Scan& more) {
  if (more.records != 0) {
    if (whole.records == 0) whole.first_length = more.first_length;
    whole.min_length =
        whole.records == 0 ? more.min_length : std::min(whole.min_length, more.min_length);
    whole.max_length = std::max(whole.max_length, more.max_length);
  }
  for (const uint64_t row : more.anchor_rows) whole.anchor_rows.push_back(row + whole.records);
  whole.anchor_offsets.insert(whole.anchor_offsets.end(), more.anchor_offsets.begin(),
                              more.anchor_offsets.end());
  whole.fault = more.fault;
  whole.fault.row += whole.records;
  whole.records += more.records;
  whole.end = more.end;
}

}  // namespace

Scan scan(Bytes file, const ScanRequest& request) {
  const uint64_t begin = request.begin;
  const uint64_t stop = std::min<uint64_t>(request.stop, file.size());
  const uint64_t total = stop > begin ? stop - begin : 0;
  const uint64_t threads = request.limit == UINT64_MAX ? std::max<size_t>(request.threads, 1) : 1;
  const uint64_t spans =
      threads == 1 ? 1 : std::clamp<uint64_t>(total / kMinSpan, 1, kSpansPerThread * threads);
  if (spans == 1) return scan_span(file, request, begin, stop);

  const auto span_begin = [&](uint64_t i) { return begin + total / spans * i; };
  const auto span_stop = [&](uint64_t i) { return i + 1 == spans ? stop : span_begin(i + 1); };
  std::vector<Scan> scans(spans);
  each_block(spans, 1, threads, [&](size_t i, size_t) {
    const uint64_t from = i == 0 ? begin : entry_of(file, begin, span_begin(i), span_stop(i));
    scans[i] = scan_span(file, request, from, span_stop(i));
  });

  Scan whole;
  whole.begin = whole.end = begin;
  for (uint64_t i = 0; i < spans && !whole.fault; ++i) {
    if (whole.end >= span_stop(i)) continue;  // one record covers the whole span
    // A thread may have entered at a false record: a TFRecord file stored inside a record.
    if (scans[i].begin != whole.end) {
      scans[i] = scan_span(file, request, whole.end, span_stop(i));
    }
    append(whole, scans[i]);
  }
  return whole;
}

uint64_t find_record(Bytes file, uint64_t begin, uint64_t stop, bool verify) {
  stop = std::min<uint64_t>(stop, file.size());
  uint64_t patience = kMaxWasted + 2 * file.size();
  for (uint64_t at = begin; at < stop && file.size() - at >= kFrameSize; ++at) {
    if (!length_is_sound(file.data() + at)) continue;
    const uint64_t length = load_le<uint64_t>(file.data() + at);
    if (patience == 0 && length > kSmallRecord) continue;
    Bytes data;
    Fault fault;
    if (read_frame(file, at, verify, data, fault)) return at;
    if (fault.code == FaultCode::kDataCrc) patience -= std::min(patience, length);
  }
  return stop;
}

}  // namespace recmap
