; The installer for Windows, made with Inno Setup 6.3 or newer by `python -m tests.release` (windows.py), which
; defines Version, Day, Program, Icon, Out and Name, and Sign if it is to be signed.
; Directives: https://jrsoftware.org/ishelp/
;
; NOT RUN YET: it was written on Linux, by the documentation.

[Setup]
AppId={{6B0F7A52-3D0C-4E0B-9C57-1E5D2B9F4C11}
AppName=Inglenook
AppVersion={#Version}
AppPublisher=The authors of Inglenook
DefaultDirName={autopf}\Inglenook
DisableProgramGroupPage=yes
; For one user, without an administrator's password, unless the user chooses otherwise.
PrivilegesRequired=lowest
PrivilegesRequiredOverridesAllowed=dialog
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
MinVersion=10.0.17763
ChangesAssociations=yes
CloseApplications=yes
Compression=lzma2/ultra64
SolidCompression=yes
SetupIconFile={#Icon}
UninstallDisplayIcon={app}\inglenook.exe
OutputDir={#Out}
OutputBaseFilename={#Name}
WizardStyle=modern
TimeStampsInUTC=yes
TouchDate={#Day}
TouchTime=00:00
#ifdef Sign
SignTool=release
SignedUninstaller=yes
#endif

[InstallDelete]
; What a version before had and this one has not.
Type: filesandordirs; Name: "{app}\_internal"

[Files]
Source: "{#Program}\*"; DestDir: "{app}"; Flags: ignoreversion recursesubdirs createallsubdirs

[Icons]
Name: "{autoprograms}\Inglenook"; Filename: "{app}\inglenook.exe"

[Registry]
Root: HKA; Subkey: "Software\Classes\Inglenook.Model"; ValueType: string; ValueData: "Language model (GGUF)"; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\Inglenook.Model\DefaultIcon"; ValueType: string; ValueData: "{app}\inglenook.exe,0"
Root: HKA; Subkey: "Software\Classes\Inglenook.Model\shell\open\command"; ValueType: string; ValueData: """{app}\inglenook.exe"" ""%1"""
Root: HKA; Subkey: "Software\Classes\.gguf\OpenWithProgids"; ValueType: string; ValueName: "Inglenook.Model"; Flags: uninsdeletevalue
Root: HKA; Subkey: "Software\Classes\Inglenook.Chats"; ValueType: string; ValueData: "Inglenook chats"; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\Inglenook.Chats\DefaultIcon"; ValueType: string; ValueData: "{app}\inglenook.exe,0"
Root: HKA; Subkey: "Software\Classes\Inglenook.Chats\shell\open\command"; ValueType: string; ValueData: """{app}\inglenook.exe"" ""%1"""
; Offered, never taken over: most .json files are something else.
Root: HKA; Subkey: "Software\Classes\.json\OpenWithProgids"; ValueType: string; ValueName: "Inglenook.Chats"; Flags: uninsdeletevalue

[Run]
Filename: "{app}\inglenook.exe"; Description: "{cm:LaunchProgram,Inglenook}"; Flags: nowait postinstall skipifsilent

[Code]
procedure CurUninstallStepChanged(CurUninstallStep: TUninstallStep);
var
  Data: String;
begin
  Data := ExpandConstant('{localappdata}\inglenook');
  if (CurUninstallStep = usPostUninstall) and not UninstallSilent and DirExists(Data) then
    if MsgBox('Delete your chats, settings and downloaded models too? They are in ' + Data + '.', mbConfirmation,
      MB_YESNO or MB_DEFBUTTON2) = IDYES then
      DelTree(Data, True, True, True);
end;
