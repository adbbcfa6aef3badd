#include "engine_core/packed_start.h"

#include <memory>
#include <string>

#include "engine_core/weights/packed_file.h"

namespace tandem {
namespace {

Status Follow(const char* flag, const std::string& packed, std::string* value) {
  if (*value == "auto") *value = packed;
  if (*value == packed) return OkStatus();
  return InvalidArgumentError("--" + std::string(flag) + " " + *value +
                              ": the model was packed with " + packed +
                              "; pack it again with this flag");
}

}  // namespace

Status FollowPackedFile(EngineConfig* config) {
  const std::string path = FindPackedFile(config->model);
  if (path.empty() || config->load_format == "dummy") return OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<PackedFile> file, PackedFile::Open(path));
  RETURN_IF_ERROR(CheckSourceUnchanged(file->facts(), path));
  RETURN_IF_ERROR(Follow("device", "cpu", &config->device));
  RETURN_IF_ERROR(Follow("dtype", std::string(DTypeName(file->facts().dtype)), &config->dtype));
  RETURN_IF_ERROR(Follow("quantization", file->facts().quantization, &config->quantization));
  if (config->tensor_parallel_size > 1 || config->pipeline_parallel_size > 1) {
    return InvalidArgumentError(
        "--tensor-parallel-size, --pipeline-parallel-size: a packed model is whole; serve " +
        file->facts().source + " with ranks");
  }
  return OkStatus();
}

}  // namespace tandem
