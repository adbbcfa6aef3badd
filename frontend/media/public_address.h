#pragma once

// Which addresses a URL of a client may lead to. Pure; any thread.

#include "common/status.h"

struct sockaddr;

namespace tandem {

// OK for an address of the public internet. INVALID_ARGUMENT for one of this host, of a private
// network, a link-local one (where clouds have their metadata), multicast, reserved ones, and those
// that hide another address (6to4, Teredo, NAT64). The message does not name the address, which
// would show the network's names to strangers.
Status CheckPublicAddress(const sockaddr& address);

}  // namespace tandem
