#include "gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/lfs_pointer.h"
#include "common/part_suffix.h"
#include "common/strings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kMaxNameBytes = 1 << 16;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 4;
constexpr int64_t kMaxParts = 10'000;
constexpr std::string_view kSuffix = ".gguf";

// The bytes of a file, taken from the front.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  StatusOr<std::span<const std::byte>> Take(uint64_t size) {
    if (size > left()) {
      return DataLossError("the file ends at byte " + std::to_string(bytes_.size()) + ", " +
                           std::to_string(size) + " more are needed at byte " +
                           std::to_string(position_) + ": truncated file?");
    }
    const auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }
  template <class T>
  StatusOr<T> Number() {
    ASSIGN_OR_RETURN(const auto bytes, Take(sizeof(T)));
    T number;
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  StatusOr<std::string_view> String() {
    ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>());
    ASSIGN_OR_RETURN(const auto bytes, Take(size));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // A name of a key or a tensor.
  StatusOr<std::string_view> Name() {
    ASSIGN_OR_RETURN(const std::string_view name, String());
    if (name.empty() || name.size() > kMaxNameBytes ||
        FindInvalidUtf8(name) != std::string_view::npos) {
      return InvalidArgumentError("the name at byte " + std::to_string(position_ - name.size()) +
                                  " must be UTF-8 of 1 to " + std::to_string(kMaxNameBytes) +
                                  " bytes");
    }
    return name;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

struct Header {
  uint64_t num_tensors = 0;
  uint64_t num_keys = 0;
};

StatusOr<Header> ReadHeader(Cursor* cursor) {
  const auto magic = cursor->Take(kMagic.size());
  if (!magic.ok() || std::memcmp(magic->data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgumentError("does not begin with GGUF: not a GGUF file");
  }
  ASSIGN_OR_RETURN(const uint32_t version, cursor->Number<uint32_t>());
  if ((version & 0xffff) == 0) {
    return UnimplementedError("is a big-endian GGUF file; only little-endian ones are read");
  }
  if (version != 2 && version != 3) {
    return UnimplementedError("GGUF version " + std::to_string(version) +
                              " is not supported, only 2 and 3");
  }
  Header header;
  ASSIGN_OR_RETURN(header.num_tensors, cursor->Number<uint64_t>());
  ASSIGN_OR_RETURN(header.num_keys, cursor->Number<uint64_t>());
  // Each takes more than 8 bytes.
  for (const uint64_t count : {header.num_tensors, header.num_keys}) {
    if (count > cursor->left() / 8) {
      return DataLossError("claims " + std::to_string(count) + " tensors or keys in " +
                           std::to_string(cursor->left()) + " bytes: truncated file?");
    }
  }
  return header;
}

Status SkipElements(GgufValueType type, uint64_t count, int depth, Cursor* cursor);

// Moves the cursor past one value of a type that has no fixed size.
Status SkipValue(GgufValueType type, int depth, Cursor* cursor) {
  if (type == GgufValueType::kString) {
    const auto text = cursor->String();
    return text.ok() ? OkStatus() : text.status();
  }
  if (type != GgufValueType::kArray) {
    return InvalidArgumentError("has the unknown value type " +
                                std::to_string(static_cast<uint32_t>(type)));
  }
  if (depth >= kMaxArrayDepth) return InvalidArgumentError("its arrays are nested too deep");
  ASSIGN_OR_RETURN(const uint32_t element, cursor->Number<uint32_t>());
  ASSIGN_OR_RETURN(const uint64_t count, cursor->Number<uint64_t>());
  return SkipElements(static_cast<GgufValueType>(element), count, depth + 1, cursor);
}

Status SkipElements(GgufValueType type, uint64_t count, int depth, Cursor* cursor) {
  const size_t size = GgufValueBytes(type);
  // Others take at least the 8 bytes of a length.
  if (count > cursor->left() / std::max<size_t>(size, 1)) {
    return DataLossError("its array of " + std::to_string(count) +
                         " values is longer than the file: truncated file?");
  }
  if (size > 0) {
    const auto bytes = cursor->Take(count * size);
    return bytes.ok() ? OkStatus() : bytes.status();
  }
  for (uint64_t i = 0; i < count; ++i) RETURN_IF_ERROR(SkipValue(type, depth, cursor));
  return OkStatus();
}

StatusOr<GgufValue> ReadValue(std::span<const std::byte> file, Cursor* cursor) {
  GgufValue value;
  ASSIGN_OR_RETURN(const uint32_t type, cursor->Number<uint32_t>());
  value.type = static_cast<GgufValueType>(type);
  if (value.type == GgufValueType::kArray) {
    value.is_array = true;
    ASSIGN_OR_RETURN(const uint32_t element, cursor->Number<uint32_t>());
    value.type = static_cast<GgufValueType>(element);
    ASSIGN_OR_RETURN(value.count, cursor->Number<uint64_t>());
  }
  const size_t begin = cursor->position();
  RETURN_IF_ERROR(SkipElements(value.type, value.count, 0, cursor));
  value.bytes = file.subspan(begin, cursor->position() - begin);
  return value;
}

Status ReadKeys(uint64_t count, std::span<const std::byte> file, Cursor* cursor,
                GgufMetadata* metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, cursor->Name());
    const auto value = ReadValue(file, cursor);
    if (!value.ok()) return value.status().WithContext("key " + std::string(key));
    if (!metadata->Add(key, *value)) {
      return InvalidArgumentError("key " + std::string(key) + " occurs twice");
    }
  }
  return OkStatus();
}

// Where a tensor lies in the data section.
struct Place {
  std::string name;
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

Status ReadPlace(Cursor* cursor, Place* place) {
  ASSIGN_OR_RETURN(const uint32_t num_dims, cursor->Number<uint32_t>());
  if (num_dims < 1 || num_dims > kMaxDims) {
    return InvalidArgumentError("has " + std::to_string(num_dims) + " dimensions, must be 1 to " +
                                std::to_string(kMaxDims));
  }
  int64_t num_elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t size, cursor->Number<uint64_t>());
    if (size < 1 || size > uint64_t{INT64_MAX} ||
        __builtin_mul_overflow(num_elements, static_cast<int64_t>(size), &num_elements)) {
      return InvalidArgumentError("has a bad shape");
    }
    place->tensor.shape.insert(place->tensor.shape.begin(), static_cast<int64_t>(size));
  }
  ASSIGN_OR_RETURN(const uint32_t type_id, cursor->Number<uint32_t>());
  const GgufTensorType* const type = FindGgufTensorType(type_id);
  if (type == nullptr) {
    return UnimplementedError("has the unknown type " + std::to_string(type_id));
  }
  place->tensor.type = type;
  if (place->tensor.shape.back() % type->block_size != 0) {
    return InvalidArgumentError("has rows of " + std::to_string(place->tensor.shape.back()) +
                                ", which its type " + std::string(type->name) +
                                " cannot cut into blocks of " + std::to_string(type->block_size));
  }
  int64_t num_bytes = 0;
  if (__builtin_mul_overflow(num_elements / type->block_size, type->block_bytes, &num_bytes)) {
    return InvalidArgumentError("has a bad shape");
  }
  place->num_bytes = static_cast<uint64_t>(num_bytes);
  ASSIGN_OR_RETURN(place->offset, cursor->Number<uint64_t>());
  return OkStatus();
}

StatusOr<std::vector<Place>> ReadPlaces(uint64_t count, Cursor* cursor) {
  std::vector<Place> places;
  for (uint64_t i = 0; i < count; ++i) {
    Place place;
    ASSIGN_OR_RETURN(const std::string_view name, cursor->Name());
    place.name = name;
    const Status status = ReadPlace(cursor, &place);
    if (!status.ok()) return status.WithContext("tensor " + place.name);
    places.push_back(std::move(place));
  }
  return places;
}

// Points the tensors to their bytes.
Status PlaceTensors(std::span<const std::byte> data, uint64_t alignment,
                    std::vector<Place>* places) {
  std::sort(places->begin(), places->end(),
            [](const Place& a, const Place& b) { return a.offset < b.offset; });
  const Place* previous = nullptr;
  uint64_t expected = 0;
  for (Place& place : *places) {
    const std::string where = "tensor " + place.name;
    if (place.offset > data.size() || place.num_bytes > data.size() - place.offset) {
      return DataLossError(where + ": its " + std::to_string(place.num_bytes) + " bytes at " +
                           std::to_string(place.offset) + " are outside the " +
                           std::to_string(data.size()) + " bytes of data: truncated file?");
    }
    if (place.offset % alignment != 0) {
      return InvalidArgumentError(where + ": its offset " + std::to_string(place.offset) +
                                  " is no multiple of the alignment " + std::to_string(alignment));
    }
    if (previous != nullptr && place.offset < previous->offset + previous->num_bytes) {
      return InvalidArgumentError("tensors " + previous->name + " and " + place.name + " overlap");
    }
    // A gap is left by a type of fewer bytes than were written.
    if (place.offset != expected) {
      return InvalidArgumentError(where + ": begins at " + std::to_string(place.offset) +
                                  ", the one before it ends at " + std::to_string(expected) +
                                  " with its padding: is its type or shape wrong?");
    }
    expected = (place.offset + place.num_bytes + alignment - 1) / alignment * alignment;
    place.tensor.bytes = data.subspan(place.offset, place.num_bytes);
    previous = &place;
  }
  return OkStatus();
}

StatusOr<uint64_t> AlignmentOf(const GgufMetadata& metadata) {
  constexpr int64_t kDefault = 32, kMost = 1 << 20;
  ASSIGN_OR_RETURN(const int64_t alignment, metadata.Integer("general.alignment", kDefault));
  if (alignment < 1 || alignment > kMost || (alignment & (alignment - 1)) != 0) {
    return InvalidArgumentError("general.alignment is " + std::to_string(alignment) +
                                ", must be a power of two up to " + std::to_string(kMost));
  }
  return static_cast<uint64_t>(alignment);
}

Status CheckBegin(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 64> text = {};
  file.read(text.data(), text.size());
  const std::string_view begin(text.data(), static_cast<size_t>(file.gcount()));
  if (begin.starts_with(kMagic)) return OkStatus();
  std::error_code error;
  if (!fs::exists(path, error)) return NotFoundError(path + ": no such file");
  return InvalidArgumentError(path + (IsLfsPointer(begin)
                                          ? std::string(": ") + kLfsPointerProblem
                                          : ": does not begin with GGUF: not a GGUF file"));
}

// NAME-0000M-of-0000N.gguf with M above 1.
bool IsLaterPart(const std::string& name) {
  const std::string_view end = "-00000-of-00000.gguf";
  if (name.size() < end.size()) return false;
  std::string tail = name.substr(name.size() - end.size());
  const bool is_first = tail.starts_with("-00001-");
  for (char& c : tail) {
    if (c >= '0' && c <= '9') c = '0';
  }
  return tail == end && !is_first;
}

}  // namespace

bool IsGgufModelName(std::string_view file_name) {
  constexpr std::string_view kOthers[] = {"mmproj",  "imatrix", "mtp-",
                                          "eagle3-", "dflash-", "dspark-"};
  return file_name.ends_with(kSuffix) &&
         std::none_of(std::begin(kOthers), std::end(kOthers), [&](std::string_view other) {
           return file_name.find(other) != file_name.npos;
         });
}

StatusOr<std::string> FindGgufFile(const std::string& model) {
  std::error_code error;
  if (model.ends_with(kSuffix) || fs::is_regular_file(model, error)) {
    RETURN_IF_ERROR(CheckBegin(model));
    return model;
  }
  std::vector<std::string> found;
  bool has_safetensors = false;
  for (const auto& entry : fs::directory_iterator(model, error)) {
    const std::string name = entry.path().filename().string();
    if (IsGgufModelName(name) && !IsLaterPart(name)) found.push_back(entry.path().string());
    has_safetensors = has_safetensors || name.ends_with(".safetensors");
  }
  const bool has_config = fs::exists(fs::path(model) / "config.json", error);
  if (found.empty() || (has_config && has_safetensors)) return std::string();
  if (found.size() == 1) return found[0];
  std::sort(found.begin(), found.end());
  return InvalidArgumentError(model + ": both " + fs::path(found[0]).filename().string() + " and " +
                              fs::path(found[1]).filename().string() + " are there; name one");
}

StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  auto file = std::unique_ptr<GgufFile>(new GgufFile(path));
  RETURN_IF_ERROR(file->Add(path, &file->metadata_));
  RETURN_IF_ERROR(file->OpenParts());
  return file;
}

Status GgufFile::Add(const std::string& path, GgufMetadata* metadata) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const auto add = [&]() -> Status {
    const auto bytes = file.bytes();
    Cursor cursor(bytes);
    ASSIGN_OR_RETURN(const Header header, ReadHeader(&cursor));
    RETURN_IF_ERROR(ReadKeys(header.num_keys, bytes, &cursor, metadata));
    ASSIGN_OR_RETURN(std::vector<Place> places, ReadPlaces(header.num_tensors, &cursor));
    ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(*metadata));
    const uint64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
    const auto data = data_begin < bytes.size() ? bytes.subspan(data_begin) : bytes.subspan(0, 0);
    RETURN_IF_ERROR(PlaceTensors(data, alignment, &places));
    for (Place& place : places) {
      if (!tensors_.emplace(place.name, std::move(place.tensor)).second) {
        return InvalidArgumentError("tensor " + place.name + " occurs twice");
      }
    }
    return OkStatus();
  };
  const Status status = add();
  if (!status.ok()) return status.WithContext(path);
  files_.push_back(std::move(file));
  return OkStatus();
}

Status GgufFile::CheckPart(const GgufMetadata& metadata, int64_t part, int64_t num_parts) const {
  ASSIGN_OR_RETURN(const int64_t number, metadata.Integer("split.no", 0));
  ASSIGN_OR_RETURN(const int64_t count, metadata.Integer("split.count", 1));
  if (number == part && count == num_parts) return OkStatus();
  return InvalidArgumentError("is part " + std::to_string(number + 1) + " of " +
                              std::to_string(count) + ", must be part " + std::to_string(part + 1) +
                              " of " + std::to_string(num_parts));
}

Status GgufFile::OpenParts() {
  const auto num_parts = metadata_.Integer("split.count", 1);
  if (!num_parts.ok()) return num_parts.status().WithContext(path_);
  if (*num_parts <= 1) return OkStatus();
  const std::string suffix = PartSuffix(1, *num_parts, kSuffix);
  if (*num_parts > kMaxParts || !path_.ends_with(suffix)) {
    return InvalidArgumentError(path_ + ": the model is split over " + std::to_string(*num_parts) +
                                " files; name the first one, which ends with " + suffix);
  }
  RETURN_IF_ERROR(CheckPart(metadata_, 0, *num_parts).WithContext(path_));
  const std::string stem = path_.substr(0, path_.size() - suffix.size());
  for (int64_t part = 1; part < *num_parts; ++part) {
    const std::string path = stem + PartSuffix(part + 1, *num_parts, kSuffix);
    GgufMetadata metadata;
    RETURN_IF_ERROR(Add(path, &metadata));
    RETURN_IF_ERROR(CheckPart(metadata, part, *num_parts).WithContext(path));
  }
  const auto num_tensors = static_cast<int64_t>(tensors_.size());
  const auto wanted = metadata_.Integer("split.tensors.count", num_tensors);
  if (!wanted.ok()) return wanted.status().WithContext(path_);
  if (*wanted == num_tensors) return OkStatus();
  return DataLossError(path_ + ": its parts have " + std::to_string(num_tensors) +
                       " tensors, split.tensors.count is " + std::to_string(*wanted));
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace tandem
