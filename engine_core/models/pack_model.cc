#include "engine_core/models/pack_model.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "common/unique_fd.h"
#include "engine_core/models/registry.h"
#include "engine_core/models/vision_tower.h"
#include "engine_core/weights/gguf_config.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/packed_file.h"
#include "engine_core/weights/packed_file_writer.h"
#include "engine_core/weights/source_identity.h"
#include "gguf/gguf_file.h"
#include "gguf/key_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Files of a model's folder that have weights, or tell where they are.
bool HasWeights(const std::string& name) {
  constexpr std::string_view kEnds[] = {".safetensors", ".index.json", ".bin", ".pt",
                                        ".pth",         ".gguf",       ".h5",  ".msgpack",
                                        ".onnx",        ".tandem"};
  for (const std::string_view end : kEnds) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

Status SystemError(const std::error_code& error, const std::string& what) {
  return ErrnoError(error.value(), what);
}

// In a folder as long as it is written; one that was left with it belongs to nobody.
constexpr const char* kMark = "model.tandem.unfinished";

void RemoveFiles(const fs::path& folder, std::string_view but) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != but) fs::remove_all(entry.path(), error);
  }
}

// An empty folder but for the mark, which is returned, locked.
StatusOr<UniqueFd> MakeFolder(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_empty(path, error) && !fs::exists(path / kMark, error)) {
    return AlreadyExistsError(path.string() + " is there already; packing makes a new folder");
  }
  fs::create_directories(path, error);
  if (error) return SystemError(error, path);
  UniqueFd mark(open((path / kMark).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!mark) return ErrnoError(errno, (path / kMark).string());
  if (flock(mark.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return AlreadyExistsError(path.string() + " is written by another packing");
  }
  RemoveFiles(path, kMark);
  return mark;
}

Status CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);  // of a link what it points to
  return error ? SystemError(error, "copying " + from.string()) : OkStatus();
}

// What the processes read of a model besides its weights.
Status CopyOthers(const fs::path& folder, const fs::path& out) {
  constexpr const char* kTemplates = "additional_chat_templates";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file(error) || HasWeights(name)) continue;
    RETURN_IF_ERROR(CopyFile(entry.path(), out / name));
  }
  if (!fs::is_directory(folder / kTemplates, error)) return OkStatus();
  fs::create_directories(out / kTemplates, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / kTemplates, error)) {
    if (!entry.is_regular_file(error)) continue;
    RETURN_IF_ERROR(CopyFile(entry.path(), out / kTemplates / entry.path().filename()));
  }
  return OkStatus();
}

StatusOr<PackedGgufConfig> WriteKeys(const std::string& path, const ModelConfig& config,
                                     const fs::path& out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  PackedGgufConfig packed = {.config = {},
                             .tensor_types = config.quantization.tensor_types,
                             .layer_bits = config.quantization.layer_bits,
                             .table_bits = config.quantization.table_bits};
  ASSIGN_OR_RETURN(packed.config, GgufConfigJson(*file));
  const std::string name = out / "tokenizer.gguf";
  std::ofstream keys(name, std::ios::binary);
  keys << GgufKeyFile(file->metadata());
  keys.close();
  if (!keys) return UnavailableError("cannot write " + name);
  return packed;
}

StatusOr<PackedFacts> FactsOf(const PackModelOptions& options, const ModelConfig& config,
                              const Backend& backend) {
  PackedFacts facts = {.quantization = options.quantization, .dtype = backend.activation_dtype()};
  std::error_code error;
  facts.source = fs::canonical(options.model, error).string();
  if (error) return SystemError(error, options.model);
  ASSIGN_OR_RETURN(facts.identity, SourceIdentity(options.model));
  ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(options.model));
  if (gguf.empty()) {
    RETURN_IF_ERROR(CopyOthers(options.model, options.out));
  } else {
    ASSIGN_OR_RETURN(facts.gguf, WriteKeys(gguf, config, options.out));
  }
  return facts;
}

Status Load(const PackModelOptions& options, const ModelConfig& config, Weights* weights,
            Backend* backend) {
  const ModelLimits limits = {.max_tokens = 1, .max_logits_rows = 1, .max_positions = 2};
  const LoadContext context = {config, limits, *weights, *backend, options.formats};
  RETURN_IF_ERROR(LoadModel(context).status());
  const Status tower = LoadVisionTower(context).status();
  // A model whose tower is not built is served without it.
  return tower.code() == StatusCode::kUnimplemented ? OkStatus() : tower;
}

// A loader may read what it does not pack; then the file is not all of the model.
Status CheckLoads(const PackModelOptions& options, const ModelConfig& config,
                  const std::string& path, Backend* backend) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PackedFile> file, PackedFile::Open(path));
  const Status loads = Load(options, config, file.get(), backend);
  if (loads.ok()) return OkStatus();
  return UnimplementedError(config.architecture + " cannot be packed, serve " + options.model +
                            " itself: a start from the packed file fails with: " + loads.message());
}

StatusOr<int64_t> PackInto(const PackModelOptions& options, const ModelConfig& config,
                           Weights* weights, Backend* backend) {
  ASSIGN_OR_RETURN(PackedFacts facts, FactsOf(options, config, *backend));
  const std::string path = PackedPath(options.out), part = path + ".part";
  ASSIGN_OR_RETURN(std::unique_ptr<PackedFileWriter> writer,
                   PackedFileWriter::Create(part, std::move(facts)));
  RecordedWeights recorded(weights, writer.get());
  RETURN_IF_ERROR(Load(options, config, &recorded, backend));
  RETURN_IF_ERROR(writer->Finish());
  RETURN_IF_ERROR(CheckLoads(options, config, part, backend));
  std::error_code error;
  fs::rename(part, path, error);
  if (error) return SystemError(error, path);
  return writer->num_bytes();
}

}  // namespace

StatusOr<int64_t> PackModel(const PackModelOptions& options, const ModelConfig& config,
                            Backend* backend) {
  if (!FindPackedFile(options.model).empty()) {
    return InvalidArgumentError(options.model + " is packed already");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights,
                   OpenWeights(options.model, options.load_format, config));
  ASSIGN_OR_RETURN(const UniqueFd mark, MakeFolder(options.out));
  StatusOr<int64_t> bytes = PackInto(options, config, weights.get(), backend);
  if (!bytes.ok()) RemoveFiles(options.out, kMark);
  std::error_code error;
  fs::remove(fs::path(options.out) / kMark, error);
  return error ? SystemError(error, options.out) : bytes;
}

}  // namespace tandem
