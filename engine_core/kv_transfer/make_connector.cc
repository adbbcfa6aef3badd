#include "engine_core/kv_transfer/make_connector.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/log.h"
#include "common/strings.h"
#include "engine_core/kv_remote/shared_cache.h"
#include "engine_core/kv_transfer/block_folder.h"
#include "engine_core/kv_transfer/example_connector.h"
#include "engine_core/kv_transfer/model_fingerprint.h"
#include "engine_core/kv_transfer/multi_connector.h"
#include "engine_core/kv_transfer/offloading_connector.h"
#include "engine_core/kv_transfer/tandem_connector.h"

namespace tandem {
namespace {

using Made = StatusOr<std::unique_ptr<InProcessConnector>>;
using Connector = KvTransferConfig::Connector;

std::string ModelName(const ConnectorPlace& place) {
  std::filesystem::path model(place.model);
  if (!model.has_filename()) model = model.parent_path();  // a slash at the end
  return model.filename().string();
}

// What the bytes of a block depend on, vLLM's facts of the kind among them.
StatusOr<std::string> FactsOfBlocks(const ConnectorPlace& place) {
  ASSIGN_OR_RETURN(const std::string fingerprint, ModelFingerprint(place.model, place.facts));
  const KvCacheSpec& spec = place.spec();
  int num_layers = 0;
  for (const KvCachePart& part : place.caches) num_layers += part.cache->spec().num_layers;
  const std::string backend = place.backend->description();
  return nlohmann::json{
      {"backend", backend.substr(0, backend.find(','))},  // how many threads it has changes nothing
      {"block_bytes", BlockCopier::BytesPerBlock(place.caches)},
      {"blocks_per_file", 1},
      {"fingerprint", fingerprint},
      {"inference_engine", "tandem"},
      {"kv_format", static_cast<int>(spec.format)},
      {"model_name", ModelName(place)},
      {"num_layers", num_layers},
      {"pp_size", place.num_stages},
      {"tokens_per_hash", spec.block_size},
      {"tp_size", place.num_tensor_ranks}}
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

StatusOr<std::unique_ptr<BlockFolder>> OpenFiles(const FileTierConfig& tier,
                                                 const ConnectorPlace& place) {
  ASSIGN_OR_RETURN(const std::string facts, FactsOfBlocks(place));
  ASSIGN_OR_RETURN(std::unique_ptr<BlockFolder> folder,
                   BlockFolder::Open(BlockFolderBase(tier.root, ModelName(place), facts), facts,
                                     BlockCopier::BytesPerBlock(place.caches)));
  if (tier.max_bytes > 0) {
    LOG_INFO << "KV offloading: " << WithCommas(tier.max_bytes / folder->bytes_per_file())
             << " KV blocks in files of " << folder->path();
  } else {
    LOG_WARNING << "KV offloading: files of " << folder->path()
                << " may take all of the disk: evictor_args has no max_storage_size_gb";
  }
  return folder;
}

Made MakeOffloading(const KvTransferConfig& config, const ConnectorPlace& place) {
  std::unique_ptr<BlockFolder> folder;
  if (config.file_tier) {
    ASSIGN_OR_RETURN(folder, OpenFiles(*config.file_tier, place));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<OffloadingConnector> connector,
      OffloadingConnector::Create(config, place.caches, std::move(folder), place.reports_events));
  LOG_INFO << "KV offloading: host memory for " << WithCommas(connector->num_host_blocks())
           << " KV blocks beyond the cache";
  return std::unique_ptr<InProcessConnector>(std::move(connector));
}

// Models do not mix, unless the operator names the subfolder.
StatusOr<std::string> SubfolderOf(const KvTransferConfig& config, const ConnectorPlace& place) {
  if (config.subfolder) return *config.subfolder;
  ASSIGN_OR_RETURN(const std::string fingerprint, ModelFingerprint(place.model, place.facts));
  return ModelName(place) + "-" + fingerprint;
}

Made MakeExample(const KvTransferConfig& config, const ConnectorPlace& place) {
  ASSIGN_OR_RETURN(KvRows rows, KvRows::Of(*place.backend, place.caches));
  ASSIGN_OR_RETURN(const std::string subfolder, SubfolderOf(config, place));
  const std::string path = config.shared_folder + (subfolder.empty() ? "" : "/") + subfolder;
  ASSIGN_OR_RETURN(std::unique_ptr<PrefixFolder> folder, PrefixFolder::Open(path, std::move(rows)));
  const char* verb = !config.loads ? "stored in " : config.stores ? "shared in " : "loaded from ";
  LOG_INFO << "KV of prompts is " << verb << path << ", whose size nothing bounds";
  return std::unique_ptr<InProcessConnector>(std::make_unique<ExampleConnector>(
      ExampleConnectorOptions{
          .stores = config.stores,
          .loads = config.loads,
          .engine_id = config.engine_id.empty() ? RandomHex(32) : config.engine_id,
          .max_blocks_to_store = place.spec().num_blocks / 2},
      std::move(folder)));
}

std::string_view NameOf(KvFormat format) {
  switch (format) {
    case KvFormat::kCompute:
      break;
    case KvFormat::kInt8:
      return " int8";
    case KvFormat::kFloat8:
      return " fp8";
    case KvFormat::kInt4:
      return " int4";
  }
  return "";
}

// Which backend lays blocks out, how it stores numbers, and which ranks have which of them.
std::string LayoutOf(const ConnectorPlace& place) {
  const std::string description = place.backend->description();
  std::string layout = description.substr(0, description.find(' '));
  layout += NameOf(place.spec().format);
  if (place.num_tensor_ranks > 1) layout += " tp" + std::to_string(place.num_tensor_ranks);
  if (place.num_stages > 1) layout += " pp" + std::to_string(place.num_stages);
  return layout;
}

Made MakeTandem(const KvTransferConfig& config, const ConnectorPlace& place) {
  ASSIGN_OR_RETURN(const BlockParts parts, BlockParts::Of(place.caches));
  ASSIGN_OR_RETURN(std::string fingerprint, ModelFingerprint(place.model, place.facts));
  const KvShape shape = {.model = std::move(fingerprint),
                         .layout = LayoutOf(place),
                         .hashes = place.hashes,
                         .block_size = static_cast<uint32_t>(place.spec().block_size),
                         .num_parts = static_cast<uint32_t>(parts.num_parts()),
                         .block_bytes = static_cast<uint64_t>(parts.block_bytes())};
  TandemConnectorOptions options = {
      .stores = config.stores,
      .loads = config.loads,
      .engine_id = config.engine_id.empty() ? RandomHex(32) : config.engine_id,
      .server = {.address = config.listen,
                 .lease_s = config.lease_s,
                 .max_leased_blocks = place.spec().num_blocks / 2},
      .peers = config.peers,
      .insecure_tcp = config.insecure_tcp};
  UniqueFd memory;
  // Memory of several ranks is theirs: their blocks go through the socket.
  if (config.stores && config.listen.is_unix() && place.caches.size() == 1) {
    ASSIGN_OR_RETURN(memory, ShareMemory(parts.memory(), parts.memory_bytes()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<TandemConnector> connector,
                   TandemConnector::Create(std::move(options), parts, shape, std::move(memory)));
  if (config.stores) {
    LOG_INFO << "KV of prompts is held for other engines at " << connector->address().ToString()
             << ", for up to " << config.lease_s << " s each";
  }
  if (config.loads) LOG_INFO << "KV of prompts is read from the engines that requests name";
  return std::unique_ptr<InProcessConnector>(std::move(connector));
}

Made MakeMulti(const KvTransferConfig& config, const ConnectorPlace& place) {
  std::vector<std::unique_ptr<InProcessConnector>> connectors;
  for (const KvTransferConfig& one : config.connectors) {
    ASSIGN_OR_RETURN(std::unique_ptr<InProcessConnector> connector, MakeConnector(one, place));
    connectors.push_back(std::move(connector));
  }
  return std::unique_ptr<InProcessConnector>(
      std::make_unique<MultiConnector>(std::move(connectors)));
}

}  // namespace

Made MakeConnector(const KvTransferConfig& config, const ConnectorPlace& place) {
  switch (config.connector) {
    case Connector::kNone:
      break;
    case Connector::kOffloading:
      return MakeOffloading(config, place);
    case Connector::kExample:
      return MakeExample(config, place);
    case Connector::kTandem:
      return MakeTandem(config, place);
    case Connector::kMulti:
      return MakeMulti(config, place);
  }
  CHECK(false) << "no connector is asked for";
  return InternalError("");
}

}  // namespace tandem
