#include "engine_core/weights/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/lfs_pointer.h"
#include "common/shape_text.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader
constexpr int kMaxDims = 8;

// Bytes of one element of any dtype in the format; 0 for others.
int64_t FormatElementBytes(std::string_view dtype) {
  static const std::map<std::string_view, int64_t> kBytes = {
      {"F64", 8},  {"I64", 8},     {"U64", 8},     {"F32", 4},    {"I32", 4}, {"U32", 4},
      {"F16", 2},  {"BF16", 2},    {"I16", 2},     {"U16", 2},    {"I8", 1},  {"U8", 1},
      {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  const auto it = kBytes.find(dtype);
  return it == kBytes.end() ? 0 : it->second;
}

// One header entry, checked against the size of the data part.
StatusOr<SafetensorsEntry> ParseEntry(const Json& json, uint64_t data_bytes) {
  if (!json.is_object()) return InvalidArgumentError("its entry is not an object");
  const auto dtype = json.find("dtype"), shape = json.find("shape"),
             offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) return InvalidArgumentError("has no dtype");
  if (shape == json.end() || !shape->is_array() || shape->size() > kMaxDims) {
    return InvalidArgumentError("has no shape of at most " + std::to_string(kMaxDims) +
                                " dimensions");
  }
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return InvalidArgumentError("has no pair of data_offsets");
  }
  SafetensorsEntry entry;
  entry.dtype = dtype->get<std::string>();
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  const int64_t element_bytes = FormatElementBytes(entry.dtype);
  if (element_bytes == 0) return InvalidArgumentError("has the unknown dtype " + entry.dtype);
  int64_t bytes = element_bytes;
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t{INT64_MAX} ||
        __builtin_mul_overflow(bytes, dim.get<int64_t>(), &bytes)) {
      return InvalidArgumentError("has a bad shape");
    }
    entry.shape.push_back(dim.get<int64_t>());
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return DataLossError("its data_offsets [" + std::to_string(entry.begin) + ", " +
                         std::to_string(entry.end) + "] are outside the " +
                         std::to_string(data_bytes) + " bytes of data: truncated file?");
  }
  if (entry.end - entry.begin != static_cast<uint64_t>(bytes)) {
    return InvalidArgumentError("its shape " + ShapeText(entry.shape) + " needs " +
                                std::to_string(bytes) + " bytes, its data_offsets hold " +
                                std::to_string(entry.end - entry.begin));
  }
  return entry;
}

// Tensors fill the data without gaps, as the format demands: a dtype of fewer bytes than were
// written leaves one.
Status CheckPlaces(const SafetensorsHeader& header) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> by_begin;
  for (const auto& [name, entry] : header.entries) {
    if (entry.begin != entry.end) by_begin.push_back({&entry, &name});
  }
  std::sort(by_begin.begin(), by_begin.end(),
            [](const auto& a, const auto& b) { return a.first->begin < b.first->begin; });
  uint64_t end = 0;
  for (size_t i = 0; i < by_begin.size(); ++i) {
    const auto& [entry, name] = by_begin[i];
    if (entry->begin < end) {
      return InvalidArgumentError("tensors " + *by_begin[i - 1].second + " and " + *name +
                                  " overlap");
    }
    if (entry->begin > end) {
      return InvalidArgumentError("tensor " + *name + " begins at byte " +
                                  std::to_string(entry->begin) +
                                  ", the one before it ends at byte " + std::to_string(end));
    }
    end = entry->end;
  }
  return OkStatus();
}

}  // namespace

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes) {
    return DataLossError("shorter than the 8 bytes of a safetensors header length");
  }
  if (IsLfsPointer({reinterpret_cast<const char*>(file.data()), file.size()})) {
    return DataLossError(kLfsPointerProblem);
  }
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return InvalidArgumentError("header of " + std::to_string(header_bytes) + " bytes, at most " +
                                std::to_string(kMaxHeaderBytes) +
                                " are allowed: not a safetensors file?");
  }
  if (header_bytes > file.size() - sizeof header_bytes) {
    return DataLossError("header of " + std::to_string(header_bytes) + " bytes in a file of " +
                         std::to_string(file.size()) + ": truncated file?");
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + sizeof header_bytes;
  StatusOr<Json> header = ParseJsonObjectOfDistinctKeys({text, header_bytes});
  if (!header.ok()) return header.status().WithContext("header");

  SafetensorsHeader result;
  result.data_begin = sizeof header_bytes + header_bytes;
  const uint64_t data_bytes = file.size() - result.data_begin;
  for (const auto& [name, json] : header->items()) {
    if (name == "__metadata__") continue;
    StatusOr<SafetensorsEntry> entry = ParseEntry(json, data_bytes);
    if (!entry.ok()) return entry.status().WithContext("tensor " + name);
    result.entries.emplace(name, *std::move(entry));
  }
  RETURN_IF_ERROR(CheckPlaces(result));
  return result;
}

}  // namespace tandem
