#include "tests/support/files/adapter_folder.h"

#include <cstring>
#include <sstream>

#include "common/random.h"

namespace tandem {
namespace {

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

}  // namespace

std::string SafetensorsBytes(const std::vector<FileTensor>& tensors) {
  std::ostringstream header;
  std::string data;
  header << "{";
  for (const FileTensor& tensor : tensors) {
    const size_t begin = data.size();
    const auto num_bytes =
        static_cast<size_t>(NumElements(tensor.shape)) * (tensor.dtype == "F32" ? 4 : 2);
    data += tensor.bytes.empty() ? std::string(num_bytes, '\0') : tensor.bytes;
    header << (begin == 0 && &tensor == &tensors.front() ? "" : ",") << "\"" << tensor.name
           << "\":{\"dtype\":\"" << tensor.dtype << "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      header << (i == 0 ? "" : ",") << tensor.shape[i];
    }
    header << "],\"data_offsets\":[" << begin << "," << data.size() << "]}";
  }
  header << "}";
  std::string text = header.str();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text + data;
}

FileTensor RandomTensor(std::string name, std::vector<int64_t> shape, uint64_t seed, float scale) {
  for (const char c : name) seed = MixBits(seed ^ static_cast<unsigned char>(c));
  FileTensor tensor = {.name = std::move(name), .shape = std::move(shape)};
  for (int64_t i = 0; i < NumElements(tensor.shape); ++i) {
    const auto bits = static_cast<double>(MixBits(seed + static_cast<uint64_t>(i)) >> 11);
    const float value = static_cast<float>(bits * 0x1p-52 - 1) * scale;
    tensor.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return tensor;
}

std::vector<FileTensor> RandomPairs(const std::vector<ModuleShape>& modules, int64_t rank,
                                    uint64_t seed) {
  std::vector<FileTensor> tensors;
  for (const ModuleShape& module : modules) {
    const std::string name = "base_model.model." + module.name;
    tensors.push_back(RandomTensor(name + ".lora_A.weight", {rank, module.columns}, seed));
    tensors.push_back(RandomTensor(name + ".lora_B.weight", {module.rows, rank}, seed));
  }
  return tensors;
}

std::string AdapterConfigText(int64_t rank, double alpha, const std::string& more) {
  std::ostringstream text;
  text << R"({"peft_type": "LORA", "target_modules": [], "r": )" << rank
       << ", \"lora_alpha\": " << alpha << (more.empty() ? "" : ", ") << more << "}";
  return text.str();
}

void WriteAdapter(const TempFolder& folder, const std::string& name, const std::string& config,
                  const std::vector<FileTensor>& tensors) {
  folder.Write(name + "/adapter_config.json", config);
  folder.Write(name + "/adapter_model.safetensors", SafetensorsBytes(tensors));
}

}  // namespace tandem
