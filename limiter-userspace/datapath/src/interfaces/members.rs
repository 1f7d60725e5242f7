//! Members of bonds. In native mode a member's driver runs the program of its bond, but passes the
//! member as the interface. So the program must know which bond each member belongs to.

use limiter_common::wire::{MAX_MEMBERS, Member};

use crate::kernel::Kernel;
use crate::machine::ports;
use crate::{DatapathError, Mode, Observed as _};

/// Up to so many bonds, the members of each are requested separately instead of all members at
/// once.
const FEW: usize = 8;

impl Kernel {
    /// Tells the program the current members of the bonds that it is attached to.
    pub(crate) fn keep_members(&mut self) {
        let native = self.attachments().iter();
        let native = native.filter(|at| at.mode == Mode::Native && at.state.is_attached());
        let bonds: Vec<u32> = native.map(|at| at.ifindex).collect();
        let found = if bonds.len() > FEW {
            ports(None)
        } else {
            bonds
                .iter()
                .map(|bond| ports(Some(*bond)))
                .collect::<Result<Vec<_>, _>>()
                .map(|all| all.concat())
        };
        let told = match found {
            Ok(mut members) => {
                members.retain(|(_, bond)| bonds.contains(bond));
                self.set_members(&members)
            }
            Err(source) => {
                let interface = "the members of bonds".to_owned();
                Err(DatapathError::Netlink { interface, source })
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, "packets of a bond may be counted as those of its members");
        }
    }

    /// Tells the program the members of bonds: pairs of a member's and its bond's index.
    pub fn set_members(&mut self, members: &[(u32, u32)]) -> Result<(), DatapathError> {
        if self.members == members {
            return Ok(());
        }
        let room = usize::try_from(MAX_MEMBERS).unwrap_or(usize::MAX);
        if members.len() > room {
            tracing::warn!(
                "bonds have {} members: packets of those after the first {room} are counted as \
                 theirs, and rules for the interface of the bond do not meet them",
                members.len()
            );
        }
        let words: Vec<Member> =
            members.iter().map(|(index, bond)| Member::new(*index, *bond)).collect();
        self.held.maps.set_members(&words)?;
        members.clone_into(&mut self.members);
        Ok(())
    }
}
