#include "engine_core/weights/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>

#include "common/mapped_file.h"
#include "common/read_file.h"
#include "common/shape_text.h"
#include "engine_core/weights/json_file.h"
#include "engine_core/weights/number_type.h"
#include "engine_core/weights/safetensors_files.h"
#include "engine_core/weights/safetensors_header.h"
#include "kernels/float8.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// A view of a [rows, columns] matrix, or of a vector when rows is 0.
Tensor View(const void* data, DType dtype, int64_t rows, int64_t columns) {
  void* memory = const_cast<void*>(data);  // Tensor views are also written through; these are not
  return rows == 0 ? Tensor(memory, dtype, {columns}) : Tensor(memory, dtype, {rows, columns});
}

// One mapped file and its checked table of contents.
class SafetensorsFile {
 public:
  static StatusOr<SafetensorsFile> Open(const std::string& path) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(file.bytes());
    if (!header.ok()) return header.status().WithContext(path);
    return SafetensorsFile(path, std::move(file), *std::move(header));
  }

  bool Has(std::string_view name) const { return header_.entries.contains(name); }
  const auto& entries() const { return header_.entries; }
  const std::string& path() const { return path_; }

  // REQUIRES: Has(name).
  StoredTensor GetStored(std::string_view name) const {
    const SafetensorsEntry& entry = header_.entries.find(name)->second;
    return StoredTensor(entry.dtype, entry.shape, header_.DataOf(entry, file_.bytes()));
  }

  // `shape` is the whole tensor's shape. The view has its last two dimensions (one for a vector);
  // of a stack, those at `index`.
  StatusOr<WeightTensor> Get(std::string_view name, const std::vector<int64_t>& shape,
                             int64_t index) const {
    const auto it = header_.entries.find(name);
    if (it == header_.entries.end())
      return NotFoundError(path_ + ": no tensor " + std::string(name));
    const SafetensorsEntry& entry = it->second;
    const std::string place = path_ + ": tensor " + std::string(name);
    if (entry.shape != shape) {
      return InvalidArgumentError(place + " has shape " + ShapeText(entry.shape) +
                                  ", the config needs " + ShapeText(shape));
    }
    if (!IsNumberType(entry.dtype)) {
      return InvalidArgumentError(place + " has dtype " + entry.dtype +
                                  ", must be F64, F32, F16 or BF16");
    }
    const std::optional<DType> dtype = NumberTypeOf(entry.dtype);  // nullopt: F64
    const int64_t columns = shape.back();
    const int64_t rows = shape.size() == 1 ? 0 : shape[shape.size() - 2];
    const int64_t number_bytes = dtype ? SizeOf(*dtype) : static_cast<int64_t>(sizeof(double));
    const auto num_bytes = static_cast<size_t>(std::max<int64_t>(rows, 1) * columns * number_bytes);
    const auto bytes = header_.DataOf(entry, file_.bytes())
                           .subspan(static_cast<size_t>(index) * num_bytes, num_bytes);
    if (!dtype) {
      std::vector<std::byte> floats = FloatsOfDoubles(bytes);
      ReleasePages(bytes);
      return WeightTensor(View(nullptr, DType::kF32, rows, columns), std::move(floats));
    }
    const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % SizeOf(*dtype) == 0;
    if (aligned) return WeightTensor(View(bytes.data(), *dtype, rows, columns));
    return WeightTensor(View(nullptr, *dtype, rows, columns), {bytes.begin(), bytes.end()});
  }

 private:
  SafetensorsFile(std::string path, MappedFile file, SafetensorsHeader header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

// Which of the files has a tensor.
using Places = std::map<std::string, size_t, std::less<>>;

class SafetensorsWeights final : public Weights {
 public:
  SafetensorsWeights(std::vector<SafetensorsFile> files, Places places, std::string where)
      : files_(std::move(files)), places_(std::move(places)), where_(std::move(where)) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    if (rows == 0) return GetShaped(name, {columns}, 0);
    return GetShaped(name, {rows, columns}, 0);
  }

  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    CHECK(index >= 0 && index < count) << index << " of " << count;
    return GetShaped(name, {count, rows, columns}, index);
  }

  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    ASSIGN_OR_RETURN(const SafetensorsFile* const file, FileOf(name));
    return file->GetStored(name);
  }

  bool Has(std::string_view name) const override { return places_.contains(name); }

  std::string PlaceOf(std::string_view name) const override {
    const auto place = places_.find(name);
    return (place == places_.end() ? where_ : files_[place->second].path()) + ": tensor " +
           std::string(name);
  }

  std::vector<std::string> Unread() const override {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) {
      if (read_.count(name) == 0) names.push_back(name);
    }
    return names;
  }

 private:
  StatusOr<WeightTensor> GetShaped(std::string_view name, const std::vector<int64_t>& shape,
                                   int64_t index) {
    ASSIGN_OR_RETURN(const SafetensorsFile* const file, FileOf(name));
    return file->Get(name, shape, index);
  }

  StatusOr<const SafetensorsFile*> FileOf(std::string_view name) {
    const auto place = places_.find(name);
    if (place == places_.end()) {
      return NotFoundError(where_ + ": tensor " + std::string(name) + " is missing");
    }
    read_.emplace(name);
    return &files_[place->second];
  }

  std::vector<SafetensorsFile> files_;
  Places places_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

struct Shards {
  std::vector<SafetensorsFile> files;
  Places places;
};

// Adds the tensors that the index does not name. Those of one file only: which of several is meant
// is not known.
Status AddUnnamed(const std::vector<std::string>& file_names, Shards* shards) {
  const Places named = shards->places;
  for (size_t i = 0; i < shards->files.size(); ++i) {
    for (const auto& [name, entry] : shards->files[i].entries()) {
      if (named.contains(name)) continue;
      const auto [place, is_new] = shards->places.emplace(name, i);
      if (is_new) continue;
      return InvalidArgumentError("tensor " + name + " is in " + file_names[place->second] +
                                  " and in " + file_names[i] + ", and in no index");
    }
  }
  return OkStatus();
}

// The shard files that an index lists, each opened once. Every tensor must be in its shard.
StatusOr<Shards> OpenShards(const std::string& dir, const Json& index) {
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return InvalidArgumentError("no weight_map");
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [name, file] : map->items()) {
    const std::string file_name = file.is_string() ? file.get<std::string>() : "";
    if (file_name.empty() || file_name.find('/') != std::string::npos) {
      const Status status = InvalidArgumentError("must name a file in the same folder");
      return status.WithContext(name).WithContext("weight_map");
    }
    names_by_file[file_name].push_back(name);
  }
  Shards shards;
  std::vector<std::string> file_names;
  for (const auto& [file_name, names] : names_by_file) {
    std::string path = dir;
    path += "/";
    path += file_name;
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    for (const std::string& name : names) {
      if (!file.Has(name)) return NotFoundError("does not contain " + name).WithContext(file_name);
      shards.places.emplace(name, shards.files.size());
    }
    shards.files.push_back(std::move(file));
    file_names.push_back(file_name);
  }
  RETURN_IF_ERROR(AddUnnamed(file_names, &shards));
  return shards;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

WeightTensor::WeightTensor(const Tensor& view, std::vector<std::byte> memory)
    : memory_(std::move(memory)), view_(view) {
  view_.data = memory_.data();
}

WeightTensor::WeightTensor(WeightTensor&& other) noexcept
    : memory_(std::move(other.memory_)),
      view_(other.view_),
      is_mapped_(std::exchange(other.is_mapped_, false)) {}

WeightTensor::~WeightTensor() {
  if (!is_mapped_) return;
  ReleasePages({static_cast<const std::byte*>(view_.data), static_cast<size_t>(view_.NumBytes())});
}

StoredTensor::StoredTensor(StoredTensor&& other) noexcept
    : dtype_(std::move(other.dtype_)),
      shape_(std::move(other.shape_)),
      memory_(std::move(other.memory_)),
      bytes_(std::exchange(other.bytes_, {})) {}

StoredTensor::~StoredTensor() {
  if (memory_.empty() && !bytes_.empty()) ReleasePages(bytes_);
}

int64_t StoredTensor::num_elements() const {
  return std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<int64_t>());
}

bool IsFloat(std::string_view dtype) { return IsNumberType(dtype) || dtype == "F8_E4M3"; }

std::vector<float> FloatsOf(const StoredTensor& tensor) {
  CHECK(IsFloat(tensor.dtype())) << tensor.dtype();
  std::vector<float> numbers(static_cast<size_t>(tensor.num_elements()));
  const std::byte* bytes = tensor.bytes().data();
  const auto half_at = [bytes](size_t i) {
    uint16_t half;
    std::memcpy(&half, bytes + i * sizeof half, sizeof half);
    return half;
  };
  if (tensor.dtype() == "F32") {
    std::memcpy(numbers.data(), bytes, numbers.size() * sizeof(float));
  } else if (tensor.dtype() == "F64") {
    const std::vector<std::byte> floats = FloatsOfDoubles(tensor.bytes());
    std::memcpy(numbers.data(), floats.data(), floats.size());
  } else if (tensor.dtype() == "F16") {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = HalfToFloat(half_at(i));
  } else if (tensor.dtype() == "BF16") {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ToFloat(Bf16{half_at(i)});
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = Float8ToFloat(static_cast<uint8_t>(bytes[i]));
    }
  }
  return numbers;
}

StatusOr<StoredTensor> Weights::GetStored(std::string_view name) {
  return NotFoundError("tensor " + std::string(name) + " is missing");
}

StatusOr<std::unique_ptr<Weights>> OpenSafetensors(const std::string& model_dir) {
  const std::string single = model_dir + "/model.safetensors";
  const std::string index = single + ".index.json";
  Shards shards;
  if (Exists(index)) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(index, kMaxJsonFileBytes));
    StatusOr<Json> json = ParseJsonObjectOfDistinctKeys(text);
    if (!json.ok()) return json.status().WithContext(index);
    StatusOr<Shards> opened = OpenShards(model_dir, *json);
    if (!opened.ok()) return opened.status().WithContext(index);
    shards = *std::move(opened);
  } else {
    std::vector<std::string> names = {"model.safetensors"};
    if (!Exists(single)) {
      ASSIGN_OR_RETURN(names, FindSafetensors(model_dir));
    }
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(model_dir + "/" + name));
      shards.files.push_back(std::move(file));
    }
    const Status status = AddUnnamed(names, &shards);
    if (!status.ok()) return status.WithContext(model_dir);
  }
  return std::unique_ptr<Weights>(std::make_unique<SafetensorsWeights>(
      std::move(shards.files), std::move(shards.places), model_dir));
}

}  // namespace tandem
