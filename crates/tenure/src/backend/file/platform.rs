//! What this backend needs from the operating system beyond plain files. A port to another system than Linux changes this file.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

use crate::time::clock::Clock;
use crate::types::bytes::{Bytes, Put};
use crate::types::error::Error;

/// The clock of leases: CLOCK_MONOTONIC of one boot, as one time namespace shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockIdentity {
    pub(super) boot: [u8; 16],
    /// The offset of the time namespace, in ns.
    offset: u64,
}

/// The directories for temporary files.
pub(super) const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The map of a namespace that shows all users with their own ids.
const ALL_USERS: [u32; 3] = [0, 0, u32::MAX];
/// The id that the kernel shows for every user that a namespace does not map.
const OVERFLOW: u32 = 65_534;
/// The type of the file system of /proc.
const PROC: u32 = 0x9fa0;

/// Whether a container manager has mounted its own boot id over the kernel's. Then another boot id does not prove a reboot.
pub(super) fn is_boot_replaced() -> Result<bool, Error> {
    let kind = rustix::fs::statfs(BOOT_ID).map_err(|_| unreadable(BOOT_ID))?.f_type;
    Ok(u32::try_from(kind).ok() != Some(PROC))
}

impl ClockIdentity {
    pub(super) fn of_this_process() -> Result<Self, Error> {
        let boot = read(BOOT_ID)?;
        let hex: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&hex, 16).map_err(|_| unreadable(BOOT_ID))?;
        let offsets = clock_offsets();
        let monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic")).unwrap_or("0 0");
        let mut parts = monotonic.split_whitespace().map(str::parse::<i64>);
        let (Some(Ok(seconds)), Some(Ok(nanos))) = (parts.next(), parts.next()) else {
            return Err(unreadable("/proc/self/timens_offsets"));
        };
        let offset = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
        Ok(ClockIdentity { boot: boot.to_be_bytes(), offset: offset.cast_unsigned() })
    }

    /// Whether the time namespace of this process shows another clock than the machine's.
    pub(super) fn is_shifted(&self) -> bool {
        self.offset != 0
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.boot);
        out.put_u64(self.offset);
    }

    pub(super) fn take(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(ClockIdentity { boot: bytes.take(16)?.try_into().ok()?, offset: bytes.u64()? })
    }
}

fn clock_offsets() -> String {
    // A kernel without time namespaces has no such file.
    fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()
}

/// When the machine was booted, in seconds of the wall clock as it is set now; `None` in a time namespace, which may show another time.
pub(super) fn booted_at() -> Option<u64> {
    let is_shifted =
        clock_offsets().lines().any(|line| line.split_whitespace().skip(1).any(|number| number != "0"));
    let micros = Clock::System.wall_micros().checked_sub(Clock::System.now().as_micros())?;
    (!is_shifted).then_some(micros / 1_000_000)
}

/// A number for this process that another running process hardly has: a hash of boot id, process namespace, process id, start time and the
/// address of the stack. The address changes with exec, so that a program does not take the sessions of the program before for its own.
pub(super) fn process_identity(clock: &ClockIdentity) -> Result<u32, Error> {
    let namespace = fs::metadata("/proc/self/ns/pid").map_err(|_| unreadable("/proc/self/ns/pid"))?.ino();
    let stat = read("/proc/self/stat")?;
    // The second field is the command in parentheses, which may contain anything; the start time is the 22nd, the stack the 28th.
    let field = |nth| stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(nth));
    let (Some(start), Some(stack)) = (field(19), field(25)) else {
        return Err(unreadable("/proc/self/stat"));
    };
    let identity = format!("{:x?} {namespace} {} {start} {stack}", clock.boot, std::process::id());
    Ok(crc32fast::hash(identity.as_bytes()))
}

/// The users that a user namespace shows, and their ids outside of it.
#[derive(Debug)]
pub(super) struct UserMap(Vec<[u32; 3]>);

impl UserMap {
    pub(super) fn of_this_process() -> Result<Self, Error> {
        const FILE: &str = "/proc/self/uid_map";
        // A kernel without user namespaces has no such file.
        if matches!(fs::exists(FILE), Ok(false)) {
            return Ok(UserMap(vec![ALL_USERS]));
        }
        UserMap::parse(&read(FILE)?).ok_or_else(|| unreadable(FILE))
    }

    /// From lines `first-inside first-outside count`.
    fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let numbers: Vec<u32> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            <[u32; 3]>::try_from(numbers).ok()
        };
        text.lines().map(line).collect::<Option<_>>().map(UserMap)
    }

    /// The id of a user in the parent namespace; `None` if this namespace does not show the user.
    fn outside(&self, user: u32) -> Option<u32> {
        self.0.iter().find_map(|&[inside, outside, count]| {
            let nth = user.checked_sub(inside).filter(|nth| *nth < count)?;
            outside.checked_add(nth)
        })
    }

    /// Whether every user has the same id as in the machine's own namespace. (The kernel maps a range only within one range of the parent
    /// namespace, so this holds for all parents as well.)
    fn is_whole(&self) -> bool {
        self.0 == [ALL_USERS]
    }

    /// Whether the owner of a file is unknown: the kernel shows this id for every user that is not in the map.
    pub(super) fn hides(&self, owner: u32) -> bool {
        owner == OVERFLOW && self.outside(owner).is_none()
    }

    /// Whether all processes of a user that see this directory of root agree on the user's id. Outside of the machine's own namespace they do
    /// - in a container, if the directory belongs to the root of the container, who is another user outside;
    /// - in a service whose namespace shows root and the service's user with their own ids.
    ///
    /// If the owner of the directory is hidden, or is not root here, an ordinary user made this namespace, and has another id outside.
    pub(super) fn agrees_on(&self, user: u32, owner_of_directory: u32) -> bool {
        let has_own_id = |user| self.outside(user) == Some(user);
        let is_roots = owner_of_directory == 0 && self.outside(0).is_some();
        self.is_whole() || is_roots && (!has_own_id(0) || has_own_id(user))
    }
}

/// The name of a file system, and whether only processes of this machine use its locks and pipes.
pub(super) fn file_system(dir: impl AsFd) -> std::io::Result<(String, bool)> {
    let kind = rustix::fs::fstatfs(dir)?.f_type;
    let (name, is_local) = match u32::try_from(kind).unwrap_or(0) {
        0x0102_1994 => ("tmpfs", true),
        0x8584_58f6 => ("ramfs", true),
        0x0000_ef53 => ("ext4", true),
        0x794c_7630 => ("overlayfs", true),
        0x5846_5342 => ("xfs", true),
        0x9123_683e => ("btrfs", true),
        0xca45_1a4e => ("bcachefs", true),
        0x2fc1_2fc1 => ("zfs", true),
        0xf2f5_2010 => ("f2fs", true),
        0x0000_6969 => ("NFS", false),
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => ("SMB", false),
        0x6573_5546 => ("FUSE", false),
        0x0102_1997 => ("9p", false),
        0x00c3_6400 => ("Ceph", false),
        0x5346_414f | 0x6b41_4653 => ("AFS", false),
        0x0bd0_0bd0 => ("Lustre", false),
        0x4750_4653 => ("GPFS", false),
        other => return Ok((format!("of an unknown kind ({other:#x})"), false)),
    };
    Ok((name.to_owned(), is_local))
}

/// The directory for temporary files that contains this path, if only this service sees it: systemd mounts a private one with
/// `PrivateTmp=yes`.
pub(super) fn private_tmp(path: &Path) -> Option<&'static str> {
    let path = fs::canonicalize(path).ok()?;
    private_tmp_among(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

/// The same, for these mounts: `36 35 98:0 /root/of/the/mount /mount/point …`. The last mount at a point is the visible one.
fn private_tmp_among(mounts: &str, path: &Path) -> Option<&'static str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        Some((fields.next()?, fields.next()?))
    });
    let (root, point) =
        mounts.filter(|(_, point)| path.starts_with(point)).max_by_key(|(_, point)| point.len())?;
    let is_private = root.split('/').any(|part| part.starts_with("systemd-private-"));
    TEMPORARY.into_iter().find(|temporary| is_private && *temporary == point)
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            Error::unavailable(format!("{path} could not be opened: too many open files"))
                .fix("raise the limit of open files")
        }
        _ => unreadable(path),
    })
}

fn unreadable(path: &str) -> Error {
    Error::unsupported(format!("{path} can't be read")).fix("file domains need Linux with /proc mounted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_the_same_for_the_whole_boot() {
        let clock = ClockIdentity::of_this_process().unwrap();
        assert_eq!(clock, ClockIdentity::of_this_process().unwrap());
        assert_ne!(clock.boot, [0; 16]);
        assert_eq!(process_identity(&clock).unwrap(), process_identity(&clock).unwrap());
    }

    #[test]
    fn the_machine_was_booted_when_the_kernel_says() {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let said: u64 = stat.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().parse().unwrap();
        assert!(booted_at().unwrap().abs_diff(said) <= 2, "{:?} and {said}", booted_at());
    }

    #[test]
    fn a_private_tmp_is_recognized_by_its_mount() {
        let host = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:40 / /tmp rw shared:5 - tmpfs tmpfs rw\n";
        let service =
            format!("{host}31 30 0:40 /systemd-private-0f-app.service-Ab/tmp /tmp rw - tmpfs tmpfs rw\n");
        let shared = format!("{service}32 31 254:0 /srv/locks /tmp/locks rw - ext4 /dev/vda rw\n");
        let on_root = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                       31 22 254:0 /var/tmp/systemd-private-0f-app.service-Ab/tmp /var/tmp rw - ext4 /dev/vda rw\n";
        for (mounts, path, expected) in [
            (host, "/tmp/locks", None),
            (&service, "/tmp/locks", Some("/tmp")),
            (&service, "/tmpfs/locks", None),
            (&service, "/run/lock/tenure-0", None),
            (&shared, "/tmp/locks", None),
            (&shared, "/tmp/other", Some("/tmp")),
            (on_root, "/var/tmp/a/b", Some("/var/tmp")),
            ("", "/tmp/locks", None),
        ] {
            assert_eq!(private_tmp_among(mounts, Path::new(path)), expected, "{path} in {mounts}");
        }
    }

    #[test]
    fn a_user_namespace_agrees_on_ids_or_is_refused() {
        let own = "         0          0 4294967295\n";
        let container = "0 100000 65536\n";
        for (map, user, owner, expected) in [
            (own, 1_000, 0, true),
            // Whatever the owner of the parent: another check refuses a wrong one.
            (own, 65_534, 65_534, true),
            // `unshare -Ur` and `unshare -U` by an ordinary user: root's directory is hidden.
            ("0 1000 1\n", 0, OVERFLOW, false),
            ("1000 1000 1\n", 1_000, OVERFLOW, false),
            ("", OVERFLOW, OVERFLOW, false),
            // The same by root: root is root.
            ("0 0 1\n", 0, 0, true),
            // The same inside the namespace of an ordinary user.
            ("0 0 1\n", 0, OVERFLOW, false),
            // Root shows itself as another user.
            ("1000 0 1\n", 1_000, 1_000, false),
            // A service with `PrivateUsers=yes`.
            ("0 0 1\n1000 1000 1\n", 1_000, 0, true),
            ("0 0 1\n5 1000 1\n", 5, 0, false),
            ("0 0 1\n1 100000 65536\n", 33, 0, false),
            // A container with its own directory, also with `--userns=keep-id`, and with the machine's.
            (container, 0, 0, true),
            (container, 33, 0, true),
            ("0 1 1000\n1000 0 1\n1001 1001 64536\n", 1_000, 0, true),
            (container, 0, OVERFLOW, false),
        ] {
            let map = UserMap::parse(map).unwrap();
            assert_eq!(map.agrees_on(user, owner), expected, "{user}, {owner} in {map:?}");
        }
        assert!(UserMap::of_this_process().unwrap().outside(0).is_some());
        assert!(UserMap::parse("0 0\n").is_none() && UserMap::parse("0 0 x\n").is_none());
        let hides = |map: &str, owner| UserMap::parse(map).unwrap().hides(owner);
        assert!(hides("0 1000 1\n", OVERFLOW) && hides("", OVERFLOW));
        assert!(!hides(own, OVERFLOW) && !hides(container, OVERFLOW) && !hides("0 1000 1\n", 0));
    }

    #[test]
    fn file_systems_have_names() {
        let proc = fs::File::open("/proc").unwrap();
        let (name, is_local) = file_system(&proc).unwrap();
        assert!(name.contains("unknown") && !is_local, "{name}");
        let shm = fs::File::open("/dev/shm").unwrap();
        assert_eq!(file_system(&shm).unwrap(), ("tmpfs".to_owned(), true));
    }
}
