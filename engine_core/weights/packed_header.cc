#include "engine_core/weights/packed_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormatVersion = 1;
constexpr std::string_view kMagic = "TANDEMPK";
constexpr int64_t kMostBytes = int64_t{1} << 60;

// Of the first page, after the magic.
struct Preamble {
  uint64_t json_at, json_bytes, json_hash;
};

constexpr std::pair<WeightFormat, const char*> kFormats[] = {
    {WeightFormat::kCompute, "compute"},
    {WeightFormat::kInt8, "int8"},
    {WeightFormat::kInt4Group32, "int4-g32"},
    {WeightFormat::kInt4Group128, "int4-g128"},
    {WeightFormat::kStored, "stored"}};
constexpr std::pair<GroupScales, const char*> kCodeScales[] = {
    {GroupScales::kFloat, "float"}, {GroupScales::kFloatZero, "float_zero"}};

constexpr std::pair<CodeKind, const char*> kCodeKinds[] = {
    {CodeKind::kInteger, "integer"}, {CodeKind::kFloat8, "float8"}, {CodeKind::kTable, "table"}};

template <class T, size_t n>
const char* NameOf(const std::pair<T, const char*> (&names)[n], T value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "";
}

template <class T, size_t n>
Status ReadName(const Json& json, const char* key, const std::pair<T, const char*> (&names)[n],
                T* out) {
  std::string text;
  RETURN_IF_ERROR(ReadString(json, key, &text));
  for (const auto& [value, name] : names) {
    if (text != name) continue;
    *out = value;
    return OkStatus();
  }
  return InvalidArgumentError(std::string(key) + " is \"" + text + "\"");
}

// An integer in [low, high], which must be there.
Status ReadInteger(const Json& json, const char* key, int64_t low, int64_t high, int64_t* out) {
  const Json* const value = Find(json, key);
  if (value == nullptr) return InvalidArgumentError(std::string(key) + " is missing");
  const bool is_integer = value->is_number_integer() &&
                          !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!is_integer || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    return BadValue(key, *value, std::to_string(low) + " to " + std::to_string(high));
  }
  *out = value->get<int64_t>();
  return OkStatus();
}

Json ToJson(const PackedForm::Source& source) {
  const BlockFormat& blocks = source.blocks;
  if (FindBlockFormat(blocks.name) != nullptr) {
    return {{"rows", source.rows}, {"blocks", std::string(blocks.name)}};
  }
  return {{"rows", source.rows},
          {"size", blocks.size},
          {"bits", blocks.bits},
          {"zero", blocks.zero},
          {"scales", NameOf(kCodeScales, blocks.scales)}};
}

// Blocks of codes, as kernels/stored_blocks.h makes them.
Status ReadCodeBlocks(const Json& json, BlockFormat* blocks) {
  int64_t bits = 0, zero = 0;
  RETURN_IF_ERROR(ReadInteger(json, "size", 32, 128, &blocks->size));
  RETURN_IF_ERROR(ReadInteger(json, "bits", 2, 8, &bits));
  RETURN_IF_ERROR(ReadInteger(json, "zero", 0, 128, &zero));
  RETURN_IF_ERROR(ReadName(json, "scales", kCodeScales, &blocks->scales));
  const bool is_size = blocks->size == 32 || blocks->size == 64 || blocks->size == 128;
  if (!is_size || bits == 7 || (zero != 0 && zero != int64_t{1} << (bits - 1))) {
    return InvalidArgumentError("no blocks have size " + std::to_string(blocks->size) + ", bits " +
                                std::to_string(bits) + " and zero " + std::to_string(zero));
  }
  blocks->name = "codes";
  blocks->num_bytes = blocks->group_size = blocks->size;
  blocks->bits = static_cast<int>(bits);
  blocks->zero = static_cast<int>(zero);
  return OkStatus();
}

Status ReadSource(const Json& json, PackedForm::Source* source) {
  if (!json.is_object()) return InvalidArgumentError("a source must be an object");
  RETURN_IF_ERROR(ReadInteger(json, "rows", 1, kMostBytes, &source->rows));
  std::string name;
  RETURN_IF_ERROR(ReadString(json, "blocks", &name));
  if (name.empty()) return ReadCodeBlocks(json, &source->blocks);
  const BlockFormat* const format = FindBlockFormat(name);
  if (format == nullptr) return InvalidArgumentError("unknown blocks \"" + name + "\"");
  source->blocks = *format;
  return OkStatus();
}

Json ToJson(const PackedHeader::Matrix& matrix) {
  const PackedForm& form = matrix.form;
  Json json = {{"n", form.n},
               {"k", form.k},
               {"gated", form.is_gated},
               {"format", NameOf(kFormats, form.format)},
               {"at", matrix.at}};
  if (matrix.scales_at > 0) json["scales_at"] = matrix.scales_at;
  for (const PackedForm::Source& source : form.sources) json["sources"].push_back(ToJson(source));
  if (form.codes) {
    json["codes"] = {{"kind", NameOf(kCodeKinds, form.codes->kind)},
                     {"bits", form.codes->bits},
                     {"zeros", form.codes->has_zeros},
                     {"groups", form.codes->num_groups}};
  }
  return json;
}

Status ReadCodes(const Json& json, PackedForm::Codes* codes) {
  if (!json.is_object()) return BadValue("codes", json, "an object");
  int64_t bits = 0;
  RETURN_IF_ERROR(ReadName(json, "kind", kCodeKinds, &codes->kind));
  RETURN_IF_ERROR(ReadInteger(json, "bits", 4, 8, &bits));
  RETURN_IF_ERROR(ReadBool(json, "zeros", &codes->has_zeros));
  codes->bits = static_cast<int>(bits);
  return ReadInteger(json, "groups", 1, kMostBytes, &codes->num_groups);
}

// Whether [at, at + size) is a page-aligned part of the data.
Status CheckPlace(int64_t at, int64_t size, int64_t data_end) {
  if (at % kPackedPage == 0 && at >= kPackedPage && at <= data_end && size <= data_end - at) {
    return OkStatus();
  }
  return DataLossError("its " + std::to_string(size) + " bytes at " + std::to_string(at) +
                       " are not pages of the file: truncated file?");
}

Status ReadMatrix(const Json& json, DType dtype, int64_t data_end, PackedHeader::Matrix* matrix) {
  if (!json.is_object()) return InvalidArgumentError("must be an object");
  PackedForm& form = matrix->form;
  form.dtype = dtype;
  RETURN_IF_ERROR(ReadInteger(json, "n", 1, kMostBytes, &form.n));
  RETURN_IF_ERROR(ReadInteger(json, "k", 1, kMostBytes, &form.k));
  RETURN_IF_ERROR(ReadBool(json, "gated", &form.is_gated));
  RETURN_IF_ERROR(ReadName(json, "format", kFormats, &form.format));
  RETURN_IF_ERROR(ReadInteger(json, "at", 0, kMostBytes, &matrix->at));
  if (const Json* const sources = Find(json, "sources")) {
    if (!sources->is_array()) return BadValue("sources", *sources, "a list");
    for (const Json& source : *sources) {
      RETURN_IF_ERROR(ReadSource(source, &form.sources.emplace_back()));
    }
  }
  if (const Json* const codes = Find(json, "codes")) {
    RETURN_IF_ERROR(ReadCodes(*codes, &form.codes.emplace(PackedForm::Codes{})));
  }
  ASSIGN_OR_RETURN(const PackedSizes sizes, SizesOf(form));
  RETURN_IF_ERROR(CheckPlace(matrix->at, sizes.panels, data_end));
  if (sizes.scales == 0) return OkStatus();
  RETURN_IF_ERROR(ReadInteger(json, "scales_at", 0, kMostBytes, &matrix->scales_at));
  return CheckPlace(matrix->scales_at, sizes.scales, data_end);
}

Status ReadVector(const Json& json, int64_t data_end, PackedHeader::Vector* vector) {
  if (!json.is_object()) return InvalidArgumentError("must be an object");
  RETURN_IF_ERROR(ReadInteger(json, "at", 0, kMostBytes, &vector->at));
  RETURN_IF_ERROR(ReadInteger(json, "size", 1, kMostBytes / 4, &vector->size));
  return CheckPlace(vector->at, vector->size * 4, data_end);
}

// [at, size, hash]
Status ReadPart(const Json& json, int64_t data_end, PackedHeader::Part* part) {
  const auto is_number = [](const Json& number) { return number.is_number_unsigned(); };
  constexpr auto kMost = static_cast<uint64_t>(kMostBytes);
  if (!json.is_array() || json.size() != 3 || !std::all_of(json.begin(), json.end(), is_number) ||
      json[0].get<uint64_t>() > kMost || json[1].get<uint64_t>() > kMost) {
    return BadValue("parts", json, "a place, a size and a hash");
  }
  *part = {json[0].get<int64_t>(), json[1].get<int64_t>(), json[2].get<uint64_t>()};
  return CheckPlace(part->at, part->size, data_end);
}

Json ToJson(const PackedFacts& facts) {
  Json json = {{"quantization", facts.quantization},
               {"dtype", std::string(DTypeName(facts.dtype))},
               {"source", facts.source},
               {"identity", facts.identity}};
  if (facts.gguf) {
    json["gguf"] = {{"config", facts.gguf->config},
                    {"tensor_types", facts.gguf->tensor_types},
                    {"layer_bits", facts.gguf->layer_bits},
                    {"table_bits", facts.gguf->table_bits}};
  }
  return json;
}

Status ReadBits(const Json& json, const char* key, double* out) {
  const Json* const value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= 64)) {
    return BadValue(key, *value, "0 to 64");
  }
  *out = value->get<double>();
  return OkStatus();
}

Status ReadFacts(const Json& json, PackedFacts* facts) {
  constexpr std::pair<DType, const char*> kDTypes[] = {{DType::kBf16, "bfloat16"},
                                                       {DType::kF32, "float32"}};
  RETURN_IF_ERROR(ReadString(json, "quantization", &facts->quantization));
  RETURN_IF_ERROR(ReadName(json, "dtype", kDTypes, &facts->dtype));
  RETURN_IF_ERROR(ReadString(json, "source", &facts->source));
  RETURN_IF_ERROR(ReadString(json, "identity", &facts->identity));
  const Json* const gguf = Find(json, "gguf");
  if (gguf == nullptr) return OkStatus();
  if (!gguf->is_object()) return BadValue("gguf", *gguf, "an object");
  PackedGgufConfig& config = facts->gguf.emplace();
  RETURN_IF_ERROR(ReadString(*gguf, "config", &config.config));
  RETURN_IF_ERROR(ReadString(*gguf, "tensor_types", &config.tensor_types));
  RETURN_IF_ERROR(ReadBits(*gguf, "layer_bits", &config.layer_bits));
  return ReadBits(*gguf, "table_bits", &config.table_bits);
}

// The panels are checked first: a later version may have other keys.
Status CheckVersion(const Json& json) {
  int64_t version = 0;
  RETURN_IF_ERROR(ReadInteger(json, "version", 0, INT32_MAX, &version));
  if (version != kFormatVersion) {
    return FailedPreconditionError("is of version " + std::to_string(version) +
                                   ", this program reads version " +
                                   std::to_string(kFormatVersion) + ": pack the model again");
  }
  std::string panels;
  RETURN_IF_ERROR(ReadString(json, "panels", &panels));
  if (panels == PanelKind()) return OkStatus();
  return FailedPreconditionError("was packed as \"" + panels + "\", this program reads \"" +
                                 std::string(PanelKind()) + "\": pack the model again");
}

const Json* FindObject(const Json& json, const char* key) {
  const Json* const value = Find(json, key);
  return value != nullptr && value->is_object() ? value : nullptr;
}

StatusOr<PackedHeader> ParseJson(std::string_view text, int64_t data_end) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  RETURN_IF_ERROR(CheckVersion(json));
  PackedHeader header;
  RETURN_IF_ERROR(ReadFacts(json, &header.facts));
  const Json *const matrices = FindObject(json, "matrices"),
                    *const vectors = FindObject(json, "vectors"),
                    *const tensors = Find(json, "tensors");
  if (matrices == nullptr || vectors == nullptr || tensors == nullptr || !tensors->is_array()) {
    return InvalidArgumentError("matrices, vectors or tensors are missing");
  }
  for (const auto& [name, value] : matrices->items()) {
    const Status read = ReadMatrix(value, header.facts.dtype, data_end, &header.matrices[name]);
    if (!read.ok()) return read.WithContext("matrix " + name);
  }
  for (const auto& [name, value] : vectors->items()) {
    const Status read = ReadVector(value, data_end, &header.vectors[name]);
    if (!read.ok()) return read.WithContext("vector " + name);
  }
  if (const Json* const parts = Find(json, "parts")) {
    if (!parts->is_array()) return BadValue("parts", *parts, "a list");
    for (const Json& part : *parts) {
      RETURN_IF_ERROR(ReadPart(part, data_end, &header.parts.emplace_back()));
    }
  }
  for (const Json& name : *tensors) {
    if (!name.is_string()) return BadValue("tensors", *tensors, "a list of names");
    header.tensors.insert(name.get<std::string>());
  }
  return header;
}

}  // namespace

std::string FirstPage(int64_t json_at, std::string_view json) {
  const Preamble preamble = {static_cast<uint64_t>(json_at), json.size(),
                             XXH3_64bits(json.data(), json.size())};
  std::string page(kMagic);
  page.append(reinterpret_cast<const char*>(&preamble), sizeof preamble);
  page.resize(kPackedPage, '\0');
  return page;
}

std::string HeaderJson(const PackedHeader& header) {
  Json json = ToJson(header.facts);
  json["version"] = kFormatVersion;
  json["panels"] = std::string(PanelKind());
  json["tensors"] = header.tensors;
  json["matrices"] = Json::object();
  json["vectors"] = Json::object();
  for (const auto& [name, matrix] : header.matrices) json["matrices"][name] = ToJson(matrix);
  for (const auto& [name, vector] : header.vectors) {
    json["vectors"][name] = {{"at", vector.at}, {"size", vector.size}};
  }
  json["parts"] = Json::array();
  for (const PackedHeader::Part& part : header.parts) {
    json["parts"].push_back({part.at, part.size, part.hash});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<PackedHeader> ParsePackedHeader(std::span<const std::byte> file) {
  Preamble preamble;
  if (file.size() < static_cast<size_t>(kPackedPage) ||
      std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgumentError("is no file of packed matrices, or packing it was cut off");
  }
  std::memcpy(&preamble, file.data() + kMagic.size(), sizeof preamble);
  if (preamble.json_at > file.size() || preamble.json_bytes != file.size() - preamble.json_at ||
      preamble.json_bytes > static_cast<uint64_t>(kMaxJsonFileBytes)) {
    return DataLossError("its header is not at its end: truncated file?");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + preamble.json_at,
                              preamble.json_bytes);
  if (XXH3_64bits(text.data(), text.size()) != preamble.json_hash) {
    return DataLossError("its header does not have its hash: a damaged file?");
  }
  return ParseJson(text, static_cast<int64_t>(preamble.json_at));
}

}  // namespace tandem
