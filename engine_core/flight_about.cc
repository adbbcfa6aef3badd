#include "engine_core/flight_about.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// The note of the program itself, which comes first.
int FindBuildId(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto* id = static_cast<std::string*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as numbers.
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const size_t name_bytes = (note.n_namesz + 3) / 4 * 4;
      const char* content = at + sizeof note + name_bytes;
      if (note.n_type == NT_GNU_BUILD_ID) {
        for (size_t k = 0; k < note.n_descsz; ++k) {
          constexpr char kDigits[] = "0123456789abcdef";
          const auto byte = static_cast<uint8_t>(content[k]);
          *id += kDigits[byte >> 4];
          *id += kDigits[byte & 15];
        }
        return 1;
      }
      at = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

std::string OwnBuildId() {
  std::string id;
  dl_iterate_phdr(FindBuildId, &id);
  return id;
}

std::string FlightAbout::ToJson() const {
  const Json json = {{"tandem_version", tandem_version},
                     {"build_id", build_id},
                     {"pid", pid},
                     {"unix_time", unix_time},
                     {"device", device},
                     {"backend", backend},
                     {"flags", flags},
                     {"num_blocks", num_blocks},
                     {"max_model_len", max_model_len},
                     {"kv_hash_seed", kv_hash_seed}};
  // Names of files may be bytes that are no text.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

StatusOr<FlightAbout> ParseFlightAbout(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FlightAbout about;
  const auto read = [&json](const char* name, auto* value) {
    using Value = std::remove_pointer_t<decltype(value)>;
    const auto entry = json.find(name);
    if (entry == json.end()) return false;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!entry->is_string()) return false;
    } else if constexpr (std::is_arithmetic_v<Value>) {
      if (!entry->is_number()) return false;
    } else {
      for (const Json& one : *entry) {
        if (!one.is_string()) return false;
      }
    }
    *value = entry->template get<Value>();
    return true;
  };
  const bool is_whole =
      json.is_object() && read("tandem_version", &about.tandem_version) &&
      read("build_id", &about.build_id) && read("pid", &about.pid) &&
      read("unix_time", &about.unix_time) && read("device", &about.device) &&
      read("backend", &about.backend) && json.contains("flags") && json["flags"].is_array() &&
      read("flags", &about.flags) && read("num_blocks", &about.num_blocks) &&
      read("max_model_len", &about.max_model_len) && read("kv_hash_seed", &about.kv_hash_seed);
  if (!is_whole) return DataLossError("what it says about its engine is broken");
  return about;
}

}  // namespace tandem
